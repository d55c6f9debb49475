# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces with a veth cable between them, made for a measurement and removed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import subprocess
import sys

from common import ROOT, Variant

sys.path.insert(0, str(ROOT / "tests" / "nixl"))

from hosts import Host, cables, ip  # noqa: E402

ADDRESSES = ("10.231.99.1/24", "10.231.99.2/24")


class NoCable(Exception):
    """Why no cable can be laid here."""


def remove_orphans() -> None:
    """Namespaces whose maker was killed before it could remove them."""
    for name, maker in re.findall(r"^(orbite-[ab]-(\d+)-\d+)\b", ip("netns", "list"), re.M):
        if not os.path.exists(f"/proc/{maker}"):
            Host(name).remove()


@contextlib.contextmanager
def laid_cable():
    """The names of two namespaces, each with one end of a cable. Raises NoCable."""
    if os.geteuid() != 0:
        raise NoCable("network namespaces need root")
    if shutil.which("ip") is None:
        raise NoCable("network namespaces need the command ip (package iproute2)")
    with cables() as make:
        try:
            remove_orphans()
            first, second = make([ADDRESSES[0]], [ADDRESSES[1]])
        except subprocess.SubprocessError as error:
            detail = getattr(error, "stderr", None) or str(error)
            raise NoCable(f"no network namespaces: {detail.strip()}") from error
        yield first.name, second.name


def over_cable(variant: Variant) -> Variant:
    """The variant with its backend's device, where it is told one, at the cable, where only
    sockets reach."""
    devices = {name: "cable0" for name in variant.env if name == "UCX_NET_DEVICES"}
    return dataclasses.replace(variant, env={**variant.env, **devices},
                               route=variant.route and "tcp")
