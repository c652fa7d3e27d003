{{- define "gatehouse.name" -}}
{{- if contains "gatehouse" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-gatehouse" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "gatehouse.selector" -}}
app.kubernetes.io/name: gatehouse
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gatehouse.labels" -}}
{{ include "gatehouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The host of the public URL. */}}
{{- define "gatehouse.host" -}}
{{ (urlParse .Values.baseUrl).host | splitList ":" | first }}
{{- end }}

{{/* The request of a probe. Arguments: the root context, and live or ready. */}}
{{- define "gatehouse.probe" -}}
httpGet:
  path: /health/{{ index . 1 }}
  port: http
  scheme: {{ if (index . 0).Values.tls.existingSecret }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{/* The fields that the pods of the deployment and of the migration share. */}}
{{- define "gatehouse.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: data
    emptyDir: {}
  - name: tmp
    emptyDir: {}
  {{- if .Values.tls.existingSecret }}
  - name: tls
    secret:
      secretName: {{ .Values.tls.existingSecret }}
      defaultMode: 0440
  {{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The fields that their containers share. */}}
{{- define "gatehouse.container" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
envFrom:
  - secretRef:
      name: {{ .Values.existingSecret }}
env:
  # How the logs name the commands of Gatehouse.
  - name: GATEHOUSE_COMMAND
    value: kubectl --namespace {{ .Release.Namespace }} exec deployment/{{ include "gatehouse.name" . }} -- gatehouse
  - name: SSO_BASE_URL
    value: {{ .Values.baseUrl | quote }}
  {{- with .Values.trustedProxies }}
  - name: SSO_TRUSTED_PROXIES
    value: {{ join "," . | quote }}
  {{- end }}
  {{- if eq .Values.database.kind "cloudnative-pg" }}
  - name: SSO_DATABASE_URL
    valueFrom:
      secretKeyRef:
        name: {{ include "gatehouse.name" . }}-db-app
        key: uri
  {{- end }}
  {{- if .Values.tls.existingSecret }}
  - name: SSO_TLS_CERTIFICATE
    value: /etc/gatehouse-tls/tls.crt
  - name: SSO_TLS_KEY
    value: /etc/gatehouse-tls/tls.key
  {{- end }}
  {{- /* Numbers of a file are floating-point: toString would write 2592000 as 2.592e+06. */}}
  {{- range $name, $value := .Values.settings }}
  - name: {{ $name }}
    value: {{ kindIs "string" $value | ternary $value (toJson $value) | quote }}
  {{- end }}
volumeMounts:
  - name: data
    mountPath: /var/lib/gatehouse
  - name: tmp
    mountPath: /tmp
  {{- if .Values.tls.existingSecret }}
  - name: tls
    mountPath: /etc/gatehouse-tls
    readOnly: true
  {{- end }}
{{- end }}
