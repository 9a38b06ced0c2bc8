"""The Helm chart: what it lets in and out, what a pod may do, and which values it takes."""

import json

import jsonschema
import pytest
import yaml

from coordinator.commands.group import HOME_VARIABLE as COORDINATOR_HOME
from coordinator.home import CoordinatorSettings
from guardian.commands import HOME_VARIABLE as GUARDIAN_HOME
from party.commands.group import HOME_VARIABLE as PARTY_HOME
from tests.harness.helm_charts import CHART, rendered
from tests.harness.pages import ROOT

DIGEST = "sha256:" + "0" * 64
IMAGE = {"repository": "registry.example.org/conclave-party", "digest": DIGEST}
BASE = {
    "image": IMAGE,
    "setup": False,
    "dials": {"cidrs": ["203.0.113.4/32"]},
    "reachableFrom": {"cidrs": ["198.51.100.0/24"]},
}
HOMES = {"party": PARTY_HOME, "coordinator": COORDINATOR_HOME, "guardian": GUARDIAN_HOME}
ROLES = pytest.mark.parametrize("role", HOMES)
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def pod(role, **more):
    return rendered(BASE | {"role": role} | more, release="north")["StatefulSet"]["spec"]["template"]["spec"]


@ROLES
def test_a_pod_is_not_root_writes_nothing_but_its_home_and_has_no_token(role):
    spec = pod(role)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    written = [each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")]
    assert written == ["/home/conclave", "/tmp"]
    assert container["image"] == f"{IMAGE['repository']}@{DIGEST}"
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)


@ROLES
def test_a_pod_runs_the_program_of_its_role_on_its_home_and_one_alone(role):
    found = rendered(BASE | {"role": role}, release="north")["StatefulSet"]["spec"]
    (container,) = found["template"]["spec"]["containers"]
    assert container["command"] == [f"conclave-{role}", "run" if role == "party" else "serve"]
    assert container["env"] == [{"name": HOMES[role], "value": "/home/conclave/home"}]
    assert found["replicas"] == 1
    assert found["volumeClaimTemplates"][0]["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert found["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
    waits = pod(role, setup=True, healthPort=9464)["containers"][0]
    assert waits["command"][0] == "python"
    assert "livenessProbe" not in waits


def test_a_probe_asks_on_loopback_from_within():
    probed = pod("coordinator", healthPort=CoordinatorSettings.metrics_port)["containers"][0]
    for name in ("startupProbe", "livenessProbe"):
        assert "http://127.0.0.1:9464/healthz" in probed[name]["exec"]["command"][2]
    assert "livenessProbe" not in pod("party")["containers"][0]


def test_records_and_what_was_received_are_mounted_read_only():
    spec = pod("party", records={"existingClaim": "wards"}, received={"existingSecret": "mail"})
    mounts = {each["mountPath"]: each.get("readOnly") for each in spec["containers"][0]["volumeMounts"]}
    assert mounts["/records"] is mounts["/received"] is True
    assert {"name": "records", "persistentVolumeClaim": {"claimName": "wards", "readOnly": True}} in spec["volumes"]
    assert len(pod("party")["volumes"]) == 1


def test_a_passphrase_is_a_file_that_the_program_is_told_of():
    spec = pod("party", passphrase={"existingSecret": "opens"})
    assert {"name": "CONCLAVE_PASSPHRASE_FILE", "value": "/passphrase/passphrase"} in spec["containers"][0]["env"]
    assert {"name": "passphrase", "mountPath": "/passphrase", "readOnly": True} in spec["containers"][0]["volumeMounts"]
    assert [each["secret"]["secretName"] for each in spec["volumes"] if "secret" in each] == ["opens"]


@ROLES
def test_only_what_a_program_needs_goes_in_and_out(role):
    found = rendered(BASE | {"role": role}, release="north")
    policy = found["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    names, dialled = policy["egress"]
    assert {each["port"] for each in names["ports"]} == {53}
    assert dialled["to"] == [{"ipBlock": {"cidr": "203.0.113.4/32"}}]
    ports = {"party": [], "coordinator": [7443, 7444], "guardian": [7445]}[role]
    assert [each["port"] for rule in policy["ingress"] for each in rule["ports"]] == ports
    assert ("Service" in found) == (role != "party")
    if role != "party":
        named = {each["name"]: each["containerPort"] for each in pod(role)["containers"][0]["ports"]}
        served = found["Service"]["spec"]["ports"]
        assert [(each["port"], named[each["targetPort"]]) for each in served] == [(port, port) for port in ports]
    closed = rendered(BASE | {"role": role, "reachableFrom": {"cidrs": []}}, release="north")["NetworkPolicy"]["spec"]
    assert not closed["ingress"]


def test_the_schema_knows_every_value_and_refuses_an_image_that_is_not_pinned():
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES) == set(SCHEMA["required"])
    good = VALUES | {"image": VALUES["image"] | IMAGE}
    jsonschema.validate(good, SCHEMA)
    for bad in (
        VALUES,
        good | {"image": good["image"] | {"digest": "3.11-slim"}},
        good | {"image": good["image"] | {"tag": "latest"}},
        good | {"role": "operator"},
        good | {"home": {"size": "much", "storageClass": ""}},
        good | {"dials": {"cidrs": ["centre.example.org"], "ports": [7443]}},
        good | {"replicas": 2},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, SCHEMA)


def test_the_chart_has_the_version_of_the_software():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'\nversion = "{chart["appVersion"]}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
