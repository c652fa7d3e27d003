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

{{- define "gatehouse.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "gatehouse.scheme" -}}
{{ if .Values.tls.existingSecret }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{/* The security of the pods and of the job of the migration. */}}
{{- define "gatehouse.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "gatehouse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "gatehouse.environment" -}}
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
  {{- range $name, $value := .Values.settings }}
  - name: {{ $name }}
    {{- /* Numbers of a file are floating-point: as a string, 2592000 would become 2.592e+06. */}}
    value: {{ if kindIs "string" $value }}{{ $value | quote }}{{ else }}{{ $value | toJson | quote }}{{ end }}
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

{{- define "gatehouse.volumes" -}}
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
{{- end }}

{{- define "gatehouse.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}
