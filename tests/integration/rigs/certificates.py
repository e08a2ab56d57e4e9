"""Certificates of a test's own, made by OpenSSL."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stack.ports import HOST


def make_certificates(folder: Path) -> None:
    """An authority, a server it vouches for, and a client whose key has a password."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ca"),
        *("-keyout", "ca.key", "-out", "ca.pem"),
    )
    (folder / "names").write_text(f"subjectAltName=IP:{HOST}\n")
    for name in ("server", "client"):
        openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.plain", "-out", f"{name}.csr"),
        )
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem"),
        )
    openssl("pkcs8", "-topk8", "-nocrypt", "-in", "server.plain", "-out", "server.key")
    encrypt = ("pkcs8", "-topk8", "-passout", "pass:key password", "-in", "client.plain")
    openssl(*encrypt, "-v1", "PBE-SHA1-3DES", "-out", "client.key")
    openssl(*encrypt, "-out", "unreadable.key")
