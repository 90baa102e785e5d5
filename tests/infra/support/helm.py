"""Helm, which Go builds once a version into the cache, and the manifests that it makes of the chart."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.helm.__main__ import FOLDER
from infra.local.cache_folders import only_one
from lake import native_core

MODULE, VERSION = "helm.sh/helm/v3/cmd/helm", "v3.22.0"
BUILD_TIMEOUT_S = 1200.0
# The oldest Kubernetes that the chart takes, one in use, and the newest whose schemas are there.
KUBERNETES = ("1.27", "1.34", "1.37")
RELEASE, NAMESPACE = "firn", "logs"

Manifest = dict[str, Any]


def program() -> Path:
    """Return Helm, built where it is not there yet; fails the test where there is no Go."""
    folder = native_core.cache_folder() / f"helm-{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder / "lock"):
        if not (folder / "helm").exists():
            go = shutil.which("go")
            if go is None:
                pytest.fail("Helm is built by Go 1.21 or newer, and there is no `go` on PATH; install one")
            variables = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
            command = [go, "install", f"{MODULE}@{VERSION}"]
            subprocess.run(command, env=variables, check=True, timeout=BUILD_TIMEOUT_S)
    return folder / "helm"


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Return what a command of Helm's has told."""
    return subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)


def rendered(values: Mapping[str, Any], folder: Path, kubernetes: str = KUBERNETES[-1]) -> list[Manifest]:
    """Return the manifests of the chart with these values; fails where Helm does."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    done = helm(
        "template", RELEASE, FOLDER, "--namespace", NAMESPACE, "--kube-version", f"{kubernetes}.0", "-f", file
    )
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(manifests: list[Manifest], *kinds: str) -> dict[str, Manifest]:
    """Return those of some kinds, by their names without the release's."""
    found = [each for each in manifests if each["kind"] in kinds]
    return {each["metadata"]["name"].removeprefix(f"{RELEASE}-"): each for each in found}


def workloads(manifests: list[Manifest]) -> dict[str, Manifest]:
    """Return what has pods, by program."""
    return of_kind(manifests, "Deployment", "StatefulSet")


def container(workload: Manifest) -> Manifest:
    """Return the one container of a workload's pods."""
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(only)


def memory_mib(workload: Manifest) -> int:
    """Return the memory of a pod in MiB, which is asked for and its limit."""
    resources = container(workload)["resources"]
    assert resources["limits"]["memory"] == resources["requests"]["memory"]
    return int(str(resources["limits"]["memory"]).removesuffix("Mi"))
