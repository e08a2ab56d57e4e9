"""The files of `deploy/`: valid for Kubernetes and the product, without root and secrets."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from cdc.config import TableSettings, load
from cdc.runtime import jars
from operate.cli import app
from operate.ui import PORT
from operate.ui.access import knows_host, token_of
from tests.unit.operate.documents import ROOT

DEPLOY = ROOT / "deploy"
FOLDERS = sorted(file.parent for file in DEPLOY.rglob("kustomization.yaml"))
PAGE = DEPLOY / "kubernetes" / "ui"
"""The folder of the web page: a component of Kustomize, for overlays that name it."""
OVERLAYS = [folder for folder in FOLDERS if folder != PAGE]
CONFIGURED = [folder for folder in OVERLAYS if (folder / "tributary.yaml").exists()]
SETTINGS = ("kustomization.yaml", "tributary.yaml")
KUBERNETES = (DEPLOY / "kubernetes").rglob("*.yaml")
MANIFESTS = sorted(file for file in KUBERNETES if file.name not in SETTINGS)


VERSIONS = ("1.29", "1.36")
KUBECTL = shutil.which("kubectl")


def name(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def pods(manifests: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The specification of each pod, with the name of the Deployment or CronJob that creates it."""
    for one in manifests:
        if one["kind"] == "Deployment":
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]
        if one["kind"] == "CronJob":
            spec = one["spec"]["jobTemplate"]["spec"]["template"]["spec"]
            yield one["metadata"]["name"], spec


PODS = dict(pods([one for file in MANIFESTS for one in documents(file)]))


@pytest.mark.parametrize("file", MANIFESTS, ids=name)
@pytest.mark.parametrize("version", VERSIONS)
def test_manifests_are_of_the_schemas_of_kubernetes(file: Path, version: str) -> None:
    found = documents(file)
    assert found
    for one in found:
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("folder", FOLDERS, ids=name)
def test_an_overlay_names_every_file_beside_it(folder: Path) -> None:
    (overlay,) = documents(folder / "kustomization.yaml")
    generated = overlay.get("configMapGenerator", [{"files": []}])[0]["files"]
    named = {*overlay["resources"], *generated}
    assert all((folder / one).exists() for one in named)
    there = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
    assert there == {one for one in named if not one.startswith("..")}


@pytest.mark.parametrize("folder", OVERLAYS, ids=name)
def test_a_patch_replaces_what_each_of_its_targets_has(folder: Path) -> None:
    (overlay,) = documents(folder / "kustomization.yaml")
    for patch in overlay.get("patches", ()):
        base = [file for file in MANIFESTS if file.parent.name == "base"]
        every = [one for file in base for one in documents(file)]
        targets = [one for one in every if one["kind"] == patch["target"]["kind"]]
        assert targets
        steps = yaml.safe_load(patch["patch"])
        if isinstance(steps, dict):
            assert (steps["kind"], steps["$patch"]) == (patch["target"]["kind"], "delete")
            continue
        for step in steps:
            assert step["op"] == "replace"
            for target in targets:
                former = target
                for part in step["path"].split("/")[1:]:
                    former = former[int(part) if isinstance(former, list) else part]
                assert isinstance(step["value"], type(former))


WITH_KUBECTL = pytest.mark.skipif(
    KUBECTL is None,
    reason="kubectl, which brings kustomize, is not installed; the files and the patches by"
    " themselves are checked without it",
)


def kustomized(folder: Path) -> list[Any]:
    """The manifests that kustomize generates from a folder.

    Asserts that they are valid, and that each pod has its service account and configuration.
    """
    ran = subprocess.run([KUBECTL or "", "kustomize", folder], capture_output=True, check=True)
    made = list(yaml.safe_load_all(ran.stdout))
    for one in made:
        for version in VERSIONS:
            kubernetes_validate.validate(one, version, strict=True)
    names = {(one["kind"], one["metadata"]["name"]) for one in made}
    assert len(names) == len(made)
    specs = dict(pods(made))
    assert specs
    for spec in specs.values():
        assert ("ServiceAccount", spec["serviceAccountName"]) in names
        (settings,) = (one["configMap"]["name"] for one in spec["volumes"] if "configMap" in one)
        assert ("ConfigMap", settings) in names
        (container,) = spec["containers"]
        assert CliRunner().invoke(app, [*container["args"], "--help"]).exit_code == 0
    return made


@WITH_KUBECTL
@pytest.mark.parametrize("folder", OVERLAYS, ids=name)
def test_what_kustomize_makes_is_valid_and_belongs_together(folder: Path) -> None:
    made = kustomized(folder)
    if folder.parent.name == "tiers":
        (run,) = (one for one in made if one["kind"] == "Deployment")
        (container,) = run["spec"]["template"]["spec"]["containers"]
        probe = container["readinessProbe"]["exec"]["command"]
        assert container["args"][-2:] == probe[-2:] == ["--tier", folder.name]
        assert run["spec"]["selector"]["matchLabels"]["tier"] == folder.name
        assert run["spec"]["template"]["metadata"]["labels"]["tier"] == folder.name


@WITH_KUBECTL
@pytest.mark.parametrize("folder", OVERLAYS, ids=name)
def test_an_overlay_can_add_the_page(folder: Path, tmp_path: Path) -> None:
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "tributary",
        "resources": [os.path.relpath(folder, tmp_path.resolve())],
        "components": [os.path.relpath(PAGE, tmp_path.resolve())],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    made = kustomized(tmp_path)
    (page,) = (
        one
        for one in made
        if one["metadata"]["name"] == "tributary-ui" and one["kind"] == "Deployment"
    )
    (service,) = (one for one in made if one["kind"] == "Service")
    labels = page["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    others = [one for one in made if one["kind"] == "Deployment" and one != page]
    for one in others:
        there = one["spec"]["template"]["metadata"]["labels"]
        assert not service["spec"]["selector"].items() <= there.items()
        assert not one["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_page_needs_a_token_and_its_service_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes replaces only ``$(NAME)`` in arguments, so the command gets the reference."""
    (page,) = documents(PAGE / "ui.yaml")
    (container,) = page["spec"]["template"]["spec"]["containers"]
    command, *options = container["args"]
    pairs = [option.removeprefix("--").split("=", 1) for option in options]
    given = dict(pairs)
    assert command == "ui"
    variable, value = "TRIBUTARY_UI_TOKEN", "canary-0123456789"
    assert given["token"] == f"${{{variable}}}"
    monkeypatch.setenv(variable, value)
    assert token_of(given["host"], given["token"]) == value
    (service,) = documents(PAGE / "service.yaml")
    (port,), (served,) = service["spec"]["ports"], container["ports"]
    assert served["containerPort"] == port["port"] == int(given["port"]) == PORT
    assert port["targetPort"] == container["readinessProbe"]["tcpSocket"]["port"] == served["name"]
    assert knows_host(service["metadata"]["name"], [name for key, name in pairs if key == "name"])


def test_the_tables_of_each_tier_have_one_process_and_the_jobs_are_there_once() -> None:
    """One example is for the default tier, and only this one keeps the jobs."""
    tiers = {folder for folder in OVERLAYS if folder.parent.name == "tiers"}
    removing = {
        folder
        for folder in tiers
        for patch in documents(folder / "kustomization.yaml")[0]["patches"]
        if "$patch: delete" in patch["patch"]
    }
    assert {folder.name for folder in tiers - removing} == {TableSettings().tier}


@pytest.mark.parametrize("folder", CONFIGURED, ids=name)
def test_its_configuration_is_one_of_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in re.findall(r"\$\{(\w+)\}", (folder / "tributary.yaml").read_text()):
        monkeypatch.setenv(variable, "canary")
    config = load(folder / "tributary.yaml")
    assert config.spark.conf["spark.local.dir"] == "/scratch"
    assert "canary" not in str(config)


@pytest.mark.parametrize("pod", PODS)
def test_a_pod_runs_without_root_on_a_file_system_that_it_cannot_change(pod: str) -> None:
    spec = PODS[pod]
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} == container["resources"].keys()
    written = {one["name"] for one in spec["volumes"] if "emptyDir" in one}
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    scratch = set() if container["args"][0] == "ui" else {"/scratch"}
    assert {mounted[one] for one in written} == {"/tmp", *scratch}
    assert [one.keys() for one in container["env"]] == [{"name", "valueFrom"}] * 2


@pytest.mark.parametrize("pod", PODS)
def test_a_pod_runs_a_command_that_there_is(pod: str) -> None:
    (container,) = PODS[pod]["containers"]
    assert CliRunner().invoke(app, [*container["args"], "--help"]).exit_code == 0
    for probe in ("readinessProbe", "livenessProbe"):
        if "exec" in container.get(probe, ()):
            program, *words = container[probe]["exec"]["command"]
            assert program == "tributary"
            assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


def test_prometheus_scrapes_the_port_at_which_one_process_serves_metrics() -> None:
    """Each process can serve the metrics of all tables, so the second process serves none."""
    (run,) = documents(DEPLOY / "kubernetes/base/run.yaml")
    template = run["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    wanted = [f"--metrics-port={port['containerPort']}", "--metrics-host=0.0.0.0"]
    assert container["args"][-2:] == wanted
    annotations = template["metadata"]["annotations"]
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port["containerPort"]),
    }
    for folder in (DEPLOY / "kubernetes/tiers").iterdir():
        text = (folder / "kustomization.yaml").read_text()
        serves = f'"{wanted[0]}"' in text
        assert serves is (folder.name == TableSettings().tier)
        assert serves is ('"prometheus.io/scrape": "false"' not in text)


def test_the_driver_has_more_memory_than_its_jvm() -> None:
    for folder in CONFIGURED:
        config = yaml.safe_load((folder / "tributary.yaml").read_text())
        heap = int(config["spark"]["driver_memory"].removesuffix("g"))
        for spec in PODS.values():
            (container,) = spec["containers"]
            if container["args"][0] != "ui":  # it has no JVM
                assert int(container["resources"]["limits"]["memory"].removesuffix("Gi")) > heap


def test_the_image_is_of_locked_parts_and_has_no_root() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    text = "\n".join(lines)
    assert "--require-hashes" in text
    assert not re.search(r"(PASSWORD|TOKEN|SECRET)\b", text)
    (base,) = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    assert re.fullmatch(r"python:3\.1[0-2]-slim-\w+@sha256:[0-9a-f]{64}", base)


def test_the_image_fetches_the_jars_by_a_call_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r'^RUN python -c "(.+)" \\$', (DEPLOY / "Dockerfile").read_text(), re.M)
    fetched = create_autospec(jars.spark_jars)
    monkeypatch.setattr(jars, "spark_jars", fetched)
    exec(code, {})
    (called,) = fetched.call_args_list
    assert called.kwargs["store"] in jars.STORES
