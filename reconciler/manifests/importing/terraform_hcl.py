"""Declarations of Terraform or OpenTofu: the `*.tf` files of one folder, their variables, locals and `for_each`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from reconciler.manifests.importing.connections import Sasl, Tls, security_of
from reconciler.manifests.importing.fields import Fields
from reconciler.manifests.importing.found import FoundCluster, Lost, Place
from reconciler.manifests.importing.hcl.modules import META, Module
from reconciler.manifests.importing.hcl.values import UnresolvedError
from reconciler.manifests.importing.terraform import KINDS, NEEDED, take_resource
from reconciler.manifests.importing.wording import OF_THE_TOOL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.manifests.importing.found import Reading
    from reconciler.manifests.importing.hcl.evaluating import Evaluation
    from reconciler.manifests.importing.hcl.parsing import Attribute, Block

USE_STATE: Final = "Import its state instead, where everything is worked out: terraform state pull > terraform.tfstate"
_PROVIDER: Final = "kafka"
_SECRETS: Final = frozenset({"sasl_password", "client_key_passphrase", "sasl_oauth_client_secret"})
_FILES: Final = {"caFile": "ca_cert", "certFile": "client_cert", "keyFile": "client_key"}
_CERTIFICATE: Final = "-----BEGIN"
_UNKNOWN: Final = "cannot be worked out from the files"

Files = list[tuple[str, "Block"]]


def read(files: Files, given: Mapping[str, Any], reading: Reading, read_file: Callable[[str], str]) -> None:
    """Take what the files of a folder declare; `given` are the values that files of variables give."""
    module = Module([block for _, body in files for block in body.blocks], given, read_file)
    for label, body in files:
        for block in body.blocks:
            match block.kind, block.labels:
                case "resource", (kind, name) if kind in KINDS:
                    _take(module, block, Place(label, block.line), f"{kind}.{name}", reading)
                case "provider", (name,) if name == _PROVIDER:
                    _take_provider(module, block, label, reading)
                case "module", (name,):
                    fields = Fields({}, reading, _at(Place(label, block.line)), subject=f"module.{name}")
                    fields.lost("", "what a module makes is not worked out here", USE_STATE)
                case _:
                    pass


def _at(place: Place) -> Callable[[Any], Place]:
    return lambda _: place


def _take(module: Module, block: Block, place: Place, address: str, reading: Reading) -> None:
    kind = block.labels[0]
    whole = Fields({}, reading, _at(place), subject=address)
    try:
        instances = list(module.instances(block))
    except (UnresolvedError, RecursionError) as error:
        whole.lost("", f"how many there are is not known: {_why(error)}", USE_STATE)
        return
    for key, here in instances:
        index = "" if key is None else f"[{json.dumps(key)}]"
        attributes, lines, lost = _evaluated(block, here)
        fields = Fields(attributes, reading, _lines(place, lines), subject=f"{address}{index}")
        needed = lost.keys() & set(NEEDED.get(kind, ()))
        for name, why in lost.items():
            fields.lost(name, f"{why}; so all of it is left out" if name in needed else why, USE_STATE)
        if needed:
            continue
        _take_nested(fields, block)
        take_resource(kind, fields, _alias(block), is_protected=_is_protected(block, here))


def _evaluated(block: Block, here: Evaluation) -> tuple[dict[str, Any], dict[str, int], dict[str, str]]:
    """Return the values of a block's attributes, their lines, and why some have none."""
    values: dict[str, Any] = {}
    lost: dict[str, str] = {}
    for name, attribute in block.attributes.items():
        if name in META or name.startswith("password"):
            continue
        try:
            whole = here.entries(attribute.expression)
            values[name], inner = whole or (here.value(attribute.expression), {})
            lost |= {f"{name}.{key}": f"{_UNKNOWN}: {why}" for key, why in inner.items()}
        except (UnresolvedError, RecursionError) as error:
            lost[name] = f"{_UNKNOWN}: {_why(error)}"
    return values, {name: each.line for name, each in block.attributes.items()}, lost


def _lines(place: Place, lines: Mapping[str, int]) -> Callable[[Any], Place]:
    return lambda path: Place(
        place.file, lines.get(str(path[0]).partition(".")[0], place.line or 1) if path else place.line
    )


def _why(error: Exception) -> str:
    return error.why if isinstance(error, UnresolvedError) else "it is nested too deeply"


def _take_nested(fields: Fields, block: Block) -> None:
    for inner in block.blocks:
        if inner.kind == "lifecycle":
            for name in inner.attributes:
                if name != "prevent_destroy":
                    lost = Lost(fields.place, fields.subject, f"lifecycle.{name}", OF_THE_TOOL, is_left_out=False)
                    fields.reading.lost.append(lost)
        elif inner.kind not in {"timeouts", "entity"}:
            fields.lost("", f"the block {inner.kind} is not worked out here", USE_STATE)


def _is_protected(block: Block, here: Evaluation) -> bool:
    """Tell whether the other tool was told never to delete it."""
    for inner in block.blocks:
        attribute = inner.attributes.get("prevent_destroy") if inner.kind == "lifecycle" else None
        if attribute is not None:
            try:
                return here.value(attribute.expression) is True
            except UnresolvedError:
                return False
    return False


def _alias(block: Block) -> str:
    """Return the alias of the provider that a resource names: `kafka.west` → `west`."""
    attribute = block.attributes.get("provider")
    words = [str(each) for each in attribute.expression.scan_values(lambda _: True)] if attribute else []
    return words[-1].strip('"') if len(words) > 1 else ""


def _take_provider(module: Module, block: Block, label: str, reading: Reading) -> None:
    """Take how the cluster is reached; what is secret is not even worked out."""
    place = Place(label, block.line)
    values: dict[str, Any] = {}
    fields = Fields(values, reading, _lines(place, {key: each.line for key, each in block.attributes.items()}))
    fields.subject = f"provider {_PROVIDER}"
    files = {
        ours: _file_of(fields, block.attributes.get(f"{theirs}_file") or block.attributes.get(theirs), theirs)
        for ours, theirs in _FILES.items()
    }
    skipped = _SECRETS | {f"{each}{end}" for each in _FILES.values() for end in ("", "_file")}
    for name, attribute in block.attributes.items():
        if name not in skipped:
            try:
                values[name] = module.evaluation.value(attribute.expression)
            except (UnresolvedError, RecursionError) as error:
                fields.lost(name, f"{_UNKNOWN}: {_why(error)}")
    fields.pass_over("timeout", "kafka_version", "sasl_aws_creds_debug")
    alias = fields.text("alias") or ""
    if fields.flag("skip_tls_verify"):
        fields.unsaid(
            "skip_tls_verify", "certificates are always verified", "Give the CA's certificate as security.caFile."
        )
    is_tls = fields.flag("tls_enabled") is not False
    servers = fields.texts("bootstrap_servers")
    if servers:
        security = security_of(fields, Tls(*files.values()) if is_tls else None, _login(fields, block))
        reading.clusters.append(FoundCluster(name=alias, place=place, bootstrap_servers=servers, security=security))
    fields.rest()


def _login(fields: Fields, block: Block) -> Sasl | None:
    mechanism, username = fields.text("sasl_mechanism"), fields.text("sasl_username")
    scopes = fields.raw("sasl_oauth_scopes")
    token_url = fields.text("sasl_token_url")
    if mechanism is None and "sasl_username" not in block.attributes:
        return None
    scope = " ".join(map(str, scopes)) if isinstance(scopes, list) else None
    return Sasl(mechanism=mechanism or "plain", username=username, token_url=token_url, client_id=username, scope=scope)


def _file_of(fields: Fields, attribute: Attribute | None, name: str) -> str | None:
    """Return the path of a certificate or key: of `file("ca.pem")`, or a text that is one; never what it holds."""
    if attribute is None:
        return None
    words = [str(each) for each in attribute.expression.scan_values(lambda _: True)]
    plain = [word for word in words if word not in {"file", "(", ")", '"'}]
    is_path = len(plain) == 1 and not plain[0].startswith(_CERTIFICATE) and '"' in words
    if is_path:
        return plain[0]
    hint = "Write its path into spec.kafka.security of the Cluster."
    fields.lost(name, "which file it is cannot be known from here", hint)
    return None
