"""The schema for the Helm chart's values, and the settings that it admits. tests/release/test_chart.py renders the chart."""

import json
from typing import Final, get_args

from pydantic import SecretStr

from entrypoints.settings import Settings
from tests import ROOT

# The chart sets these itself, from other values, or has no port for them.
OF_THE_CHART: Final = {
    "SSO_BASE_URL",
    "SSO_BIND",
    "SSO_DATA_DIR",
    "SSO_TLS_CERTIFICATE",
    "SSO_TLS_KEY",
    "SSO_TLS_REDIRECT_BIND",
    "SSO_TRUSTED_PROXIES",
}


def test_the_chart_admits_all_settings_that_are_not_secret() -> None:
    schema = json.loads((ROOT / "ops/helm/gatehouse/values.schema.json").read_text())
    fields = Settings.model_fields.items()
    public = {f"SSO_{name.upper()}" for name, field in fields if SecretStr not in {field.annotation, *get_args(field.annotation)}}
    assert schema["properties"]["settings"]["properties"].keys() == public - OF_THE_CHART
