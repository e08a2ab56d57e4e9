"""docker-compose.yml is the same stack as the local one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from jsonschema.validators import validator_for
from typer.testing import CliRunner

from operate.cli import app
from operate.ui.access import token_of
from stack import mysql_settings as mysql
from stack.artifacts import LOCK
from stack.jvm import LOGIN_MODULE, connect_properties, kafka_properties
from stack.mysql_software import MYSQL, PRODUCTS
from stack.ports import HOST
from stack.postgres import REPLICA_SETTINGS, ROLES, ROLES_SQL, SETTINGS
from stack.roles import CONNECT, PURPOSES

FILE = Path(__file__).parents[3] / "docker-compose.yml"
# What differs because containers have other addresses, folders and ways to load plugins.
OF_THE_PLACE = {
    "kafka": {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"},
    "connect": {
        "bootstrap.servers",
        "listeners",
        "rest.advertised.host.name",
        "plugin.path",
        "plugin.discovery",
        "config.providers.file.param.allowed.paths",
        "config.providers.directory.param.allowed.paths",
    },
    "postgres": {"listen_addresses", "port", "unix_socket_directories", "log_timezone"},
}
# Whose images are known by their release only, each with the reason in the file.
WITHOUT_DIGEST = {"registry", "connect", "connect_mysql", "connect_mariadb"}
PAGE = "ui"
# The image's own variables for these, without the prefix.
UNPREFIXED = {"group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
    return document


def tag(compose: dict[str, Any], service: str) -> str:
    return str(compose["services"][service]["image"]).partition("@")[0].rpartition(":")[2]


def revision(bundle: str, name: str) -> str:
    return next(artifact.revision for artifact in LOCK[bundle] if artifact.name == name)


def problems(document: dict[str, Any]) -> list[str]:
    """The violations of the Compose schema in the document."""
    schema = get_builtin_schema("vendor.compose-spec")
    validator = validator_for(schema)(schema)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


def test_it_is_valid_by_the_compose_schema(compose: dict[str, Any]) -> None:
    assert problems(compose) == []


def test_the_schema_can_refuse(compose: dict[str, Any]) -> None:
    broken = json.loads(json.dumps(compose))
    broken["services"]["kafka"]["imagee"] = "x"
    assert problems(broken)


def test_versions_are_those_of_the_lock(compose: dict[str, Any]) -> None:
    assert tag(compose, "kafka") == revision("kafka", "kafka-clients")
    assert tag(compose, "connect") == revision("debezium-postgres", "debezium-connector-postgres")
    assert tag(compose, "registry") == revision("registry", "apicurio-registry-app")
    assert re.fullmatch(r"15\.\d+", tag(compose, "primary"))
    for kind, product in PRODUCTS.items():
        connector = revision(f"debezium-{kind}", f"debezium-connector-{kind}")
        assert tag(compose, f"connect_{kind}") == connector
        assert re.fullmatch(rf"{re.escape(product.tested)}\.\d+", tag(compose, kind))
        pinned = product.package.version
        assert pinned is None or pinned.startswith(f"{product.tested}.")


def test_images_are_known_by_their_digests(compose: dict[str, Any]) -> None:
    services = compose["services"].items()
    images = {name: service["image"] for name, service in services if "build" not in service}
    digest = re.compile(r"[^@]+:[^@:]+@sha256:[0-9a-f]{64}")
    known = {name for name, image in images.items() if digest.fullmatch(image)}
    assert set(images) - known == WITHOUT_DIGEST
    assert not [images[name] for name in WITHOUT_DIGEST if "@" in images[name]]
    lines = re.findall(r"^ *image: (.*)$", FILE.read_text("utf-8"), re.MULTILINE)
    assert sorted(lines) == sorted(
        f"{image}  # no digest could be verified" if name in WITHOUT_DIGEST else image
        for name, image in images.items()
    )
    assert images["primary"] == images["replica"]
    assert all(images[kind] == images[f"{kind}_replica"] for kind in PRODUCTS)


def test_every_service_is_checked_and_reachable_from_this_machine_only(
    compose: dict[str, Any],
) -> None:
    of_a_kind = {name for kind in PRODUCTS for name in (kind, f"{kind}_replica", f"connect_{kind}")}
    always = {"primary", "replica", "kafka", "registry", "connect"}
    assert set(compose["services"]) == always | of_a_kind | {PAGE}
    for name, service in compose["services"].items():
        if name == PAGE:
            continue
        assert service["healthcheck"]["test"]
        wanted = [kind for kind in PRODUCTS if name in (kind, f"{kind}_replica", f"connect_{kind}")]
        assert service.get("profiles", []) == wanted
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_kafka_has_the_same_settings(compose: dict[str, Any]) -> None:
    environment = compose["services"]["kafka"]["environment"]
    ours = kafka_properties(1, 2, Path("/data"))
    for key, value in ours.items():
        if key not in OF_THE_PLACE["kafka"]:
            assert environment["KAFKA_" + key.replace(".", "_").upper()] == value


def test_connect_has_the_same_settings(compose: dict[str, Any]) -> None:
    environment = compose["services"]["connect"]["environment"]
    ours = connect_properties(1, 2, Path("/secrets"), ())
    for key, value in ours.items():
        if key not in OF_THE_PLACE["connect"]:
            prefix = "" if key in UNPREFIXED else "CONNECT_"
            assert environment[prefix + key.replace(".", "_").upper()] == value, key


def test_connect_asks_for_the_same_login(compose: dict[str, Any]) -> None:
    texts = {name: config["content"] for name, config in compose["configs"].items()}
    service = compose["services"]["connect"]
    places = {config["source"]: config["target"] for config in service["configs"]}
    users = places["connect-users"]
    assert texts["connect-login"] == LOGIN_MODULE.replace("users.properties", users)
    assert places["connect-login"] == service["environment"]["KAFKA_OPTS"].partition("=")[2]
    password = "${TRIBUTARY_CONNECT_PASSWORD:?set it in the environment}"
    assert texts["connect-users"] == f"{CONNECT}={password}\n"
    assert texts["connect-health"] == f'user = "{CONNECT}:{password}"\n'
    assert f"-K {places['connect-health']} " in service["healthcheck"]["test"][1]


@pytest.mark.parametrize("kind", PRODUCTS)
def test_connect_of_another_release_differs_in_its_group_only(
    compose: dict[str, Any], kind: str
) -> None:
    ours, theirs = compose["services"]["connect"], compose["services"][f"connect_{kind}"]
    differing = {key for key in theirs if theirs[key] != ours.get(key)}
    assert differing == {"profiles", "image", "environment", "ports"}
    environment = theirs["environment"]
    assert {key for key in environment if environment[key] != ours["environment"].get(key)} == {
        key.replace(".", "_").upper() for key in UNPREFIXED
    }


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("replica", [False, True], ids=["primary", "replica"])
def test_mysql_and_mariadb_have_the_same_settings(
    compose: dict[str, Any], kind: str, replica: bool
) -> None:
    service = compose["services"][f"{kind}_replica" if replica else kind]
    given = dict(option.removeprefix("--").split("=") for option in service["command"])
    assert given.pop("server_id") == ("2" if replica else "1")
    ours = {**mysql.SETTINGS, **mysql.SETTINGS_BY_KIND[kind]}
    if replica and kind == MYSQL:
        # Given at start, the image could not initialise; its script sets it at the end.
        name, value = next(iter(mysql.REPLICA_SETTINGS[kind].items()))
        assert f"SET PERSIST {name}={value};" in compose["configs"][f"{kind}-replica"]["content"]
    elif replica:
        ours |= mysql.REPLICA_SETTINGS[kind]
    # Left to the images: how much they cache, and durability.
    left = {"innodb_buffer_pool_size", "innodb_flush_log_at_trx_commit", "sync_binlog"}
    assert given == {key: value for key, value in ours.items() if key not in left}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_roles_of_mysql_and_mariadb_have_the_same_rights(
    compose: dict[str, Any], kind: str
) -> None:
    lines = compose["configs"][f"{kind}-roles"]["content"].splitlines()
    statements = [line.rstrip(";") for line in lines if line.endswith(";")]
    without = [re.sub(r"\$\$\(cat /run/secrets/(\w+)\)", r"{\1}", text) for text in statements]
    ours = [
        re.sub(r"\{(?:stack|tributary)_(\w+)\}", r"{\1}", x) for x in mysql.roles_sql(kind, "%")
    ]
    assert without == ours


@pytest.mark.parametrize(
    ("service", "template"), [("primary", SETTINGS), ("replica", SETTINGS + REPLICA_SETTINGS)]
)
def test_postgres_has_the_same_settings(
    compose: dict[str, Any], service: str, template: str
) -> None:
    given = dict(
        option.removeprefix("-c").split("=")
        for option in compose["services"][service]["command"]
        if option.startswith("-c")
    )
    ours = dict(re.findall(r"^(\w+) = '?([^'\n]*)'?$", template, re.MULTILINE))
    # Left to the images: where they listen, how much they cache, how they log, and durability.
    left = OF_THE_PLACE["postgres"] | {
        *("password_encryption", "shared_buffers", "fsync", "log_line_prefix"),
        *("primary_conninfo", "primary_slot_name"),
    }
    assert given == {key: value for key, value in ours.items() if key not in left}


def test_roles_have_the_same_rights(compose: dict[str, Any]) -> None:
    script = compose["configs"]["roles"]["content"]
    statements = {
        re.sub(r" PASSWORD .*", "", line).strip("; ")
        for line in script.splitlines()
        if re.match(r"CREATE ROLE|GRANT|CREATE DATABASE shop", line)
    }
    ours = {
        re.sub(r" PASSWORD .*", "", line).strip("; ")
        for line in ROLES_SQL.splitlines()
        if re.match(r"CREATE ROLE|GRANT|CREATE DATABASE", line)
    }
    assert statements - {"CREATE ROLE registry LOGIN"} == ours
    assert all(role in script for role in ROLES[1:])


def test_no_password_is_written_into_it() -> None:
    text = FILE.read_text("utf-8")
    for match in re.finditer(r"(?i)password: +(.+)", text):
        assert match[1].startswith("${TRIBUTARY_"), match[0]


def test_the_page_is_of_this_machine_and_changes_nothing(
    compose: dict[str, Any], tmp_path: Path
) -> None:
    """The page's token is a reference, which Compose passes to the command without resolving it."""
    service = compose["services"][PAGE]
    assert service["profiles"] == [PAGE]
    assert (FILE.parent / service["build"]["dockerfile"]).is_file()
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["healthcheck"]["test"]
    command, *options = service["command"]
    given = dict(option.removeprefix("--").split("=", 1) for option in options)
    assert (command, given["host"]) == ("ui", HOST)
    assert CliRunner().invoke(app, [command, *options, "--help"]).exit_code == 0
    place, token = "/run/secrets/ui", tmp_path / "token"
    token.write_text("canary-0123456789\n")
    reference = given["token"].replace("$$", "$")
    assert reference == f"${{file:{place}}}"
    assert token_of("0.0.0.0", reference.replace(place, str(token))) == "canary-0123456789"
    assert service["secrets"] == [PAGE]
    assert compose["secrets"][PAGE] == {"environment": "TRIBUTARY_UI_TOKEN"}
    passed = {name for name, value in service["environment"].items() if value is None}
    assert passed == {f"TRIBUTARY_{one.upper()}_PASSWORD" for one in ("connect", *PURPOSES)}
    volumes = dict(volume.split(":", 1) for volume in service["volumes"])
    assert volumes["./tributary.yaml"] == f"{service['environment']['TRIBUTARY_CONFIG']}:ro"
    assert volumes["./.tributary"] == f"{service['working_dir']}/.tributary"
