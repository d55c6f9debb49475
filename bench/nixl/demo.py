# SPDX-License-Identifier: Apache-2.0
"""Two processes with a real NIXL agent each move bytes and notifications both ways.

Every byte of both regions, the guard gaps around the blocks included, is compared with a model
after each step. The exit status is 0 if nothing differs, 1 if something does, 2 if the setup is
not complete.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from common import (PLUGIN_DIR, SetupError, check_nixl, gigabytes_per_s, pick_variant, route_name,
                    variants)
from facts import version_facts, write_table
from layouts import KIB, MIB, Layout, region_bytes_for, shape
from pair import Pair, WorkerFailed

ONE_BLOCK = Layout(1, 64 * MIB)
LARGE_BLOCKS = Layout(1024, 64 * KIB)
SMALL_BLOCKS = Layout(4096, 4 * KIB)
TIMED_POSTS = 5
REPOSTS = 3
NOTIF_TIMEOUT_S = 5.0
NOTIF_WITH_NUL = b"block\x00table\x00\xff ready"
COLUMNS = ["work", "way", "GB/s", "p50 us", "bytes verified", "guards intact", "route used",
           "result"]


class Demo:
    def __init__(self, pair: Pair, region_bytes: int):
        self._pair = pair
        self._extent = region_bytes
        self._key = 100
        self.rows: list[dict] = []

    def _next_key(self) -> int:
        self._key += 1
        return self._key

    def _other(self, side: str) -> str:
        return "b" if side == "a" else "a"

    def _roles(self, side: str, op: str) -> tuple[str, str]:
        """The sides that the bytes come from and go to."""
        return (side, self._other(side)) if op == "WRITE" else (self._other(side), side)

    def _fill(self, source: str, destination: str) -> tuple[int, int]:
        keys = self._next_key(), self._next_key()
        for side, key in zip((source, destination), keys):
            self._pair.call(side, "fill", key=key, extent=self._extent)
        return keys

    def _verify(self, source, destination, keys, layout: list, op: str, order: str) -> dict:
        """Both whole regions: the destination has the blocks, the source is as it was."""
        moved = self._pair.call(
            destination, "verify", layout=layout, extent=self._extent, key=keys[1],
            source={"op": op, "key": keys[0], "order": order})
        kept = self._pair.call(source, "verify", layout=layout, extent=self._extent, key=keys[0])
        return {"bytes_verified": moved["bytes_verified"],
                "bytes_compared": moved["bytes_compared"] + kept["bytes_compared"],
                "bytes_wrong": moved["bytes_wrong"] + kept["bytes_wrong"],
                "guards_intact": moved["guards_intact"] and kept["guards_intact"],
                "ok": moved["ok"] and kept["ok"]}

    def _record(self, work: str, side: str, **facts) -> None:
        way = f"{side.upper()} -> {self._other(side).upper()}"
        row = {"work": work, "way": way, "gbps": None, "p50_us": None, "bytes_verified": 0,
               "guards_intact": None, "route": "", "ok": False, **facts}
        self.rows.append(row)
        print(f"{'ok ' if row['ok'] else 'BAD'} {work}, {row['way']}", file=sys.stderr)

    def _route(self, side: str, before: dict) -> str:
        after = self._pair.call(side, "routes")
        return route_name(before["counts"], after["counts"], after["name"])

    def transfer(self, side: str, op: str, layout: Layout, order: str, style: str = "list",
                 work: str = ""):
        """One request, timed over a few posts; then new content and one more, verified."""
        source, destination = self._roles(side, op)
        sent = shape(layout)
        before = self._pair.call(side, "routes")
        self._fill(source, destination)
        made = self._pair.call(side, "prepare", op=op, layout=sent, order=order, style=style)
        timed = self._pair.call(side, "measure", handle=made["handle"], budget_s=0,
                                iters_min=TIMED_POSTS, iters_max=TIMED_POSTS, warm_s=0.01)
        keys = self._fill(source, destination)
        self._pair.call(side, "post", handle=made["handle"])
        checked = self._verify(source, destination, keys, sent, op, order)
        self._pair.call(side, "release", handle=made["handle"])
        payload = layout.payload if order != "half" else layout.payload // 2
        self._record(work or f"{op} {layout.name}", side, **checked,
                     way=f"{source.upper()} -> {destination.upper()}",
                     gbps=gigabytes_per_s(payload, timed["p50_ns"]),
                     p50_us=timed["p50_ns"] / 1000, route=self._route(side, before))

    def repost(self, side: str, op: str):
        """The same prepared request posted again, each time with new content on both sides."""
        source, destination = self._roles(side, op)
        layout = SMALL_BLOCKS
        sent = shape(layout)
        before = self._pair.call(side, "routes")
        made = self._pair.call(side, "prepare", op=op, layout=sent, order="shuffle")
        total = {"bytes_verified": 0, "bytes_compared": 0, "bytes_wrong": 0,
                 "guards_intact": True, "ok": True}
        times = []
        for _ in range(REPOSTS):
            keys = self._fill(source, destination)
            times.append(self._pair.call(side, "post", handle=made["handle"])["total_ns"])
            checked = self._verify(source, destination, keys, sent, op, "shuffle")
            for name, value in checked.items():
                total[name] = total[name] and value if isinstance(value, bool) \
                    else total[name] + value
        self._pair.call(side, "release", handle=made["handle"])
        middle = sorted(times)[len(times) // 2]
        self._record(f"{op} {layout.name}, posted {REPOSTS} times", side, **total,
                     way=f"{source.upper()} -> {destination.upper()}",
                     gbps=gigabytes_per_s(layout.payload, middle), p50_us=middle / 1000,
                     route=self._route(side, before))

    def _expect(self, side: str, sender: str, message: bytes) -> bool:
        """Exactly this notification from this sender, and no other, has arrived at a side."""
        arrived = self._pair.call(side, "notifs", count=1, timeout_s=NOTIF_TIMEOUT_S)["notifs"]
        return arrived == [[f"demo-{sender}", message.hex()]]

    def attached_notification(self, side: str, op: str):
        """A notification that travels with a transfer, to the side that did not post it."""
        source, destination = self._roles(side, op)
        target = self._other(side)
        layout = LARGE_BLOCKS
        sent = shape(layout)
        before = self._pair.call(side, "routes")
        keys = self._fill(source, destination)
        made = self._pair.call(side, "prepare", op=op, layout=sent, order="shuffle")
        posted = self._pair.call(side, "post", handle=made["handle"], notif=NOTIF_WITH_NUL.hex())
        arrived = self._expect(target, side, NOTIF_WITH_NUL)
        checked = self._verify(source, destination, keys, sent, op, "shuffle")
        self._pair.call(side, "release", handle=made["handle"])
        checked["ok"] = checked["ok"] and arrived
        self._record(f"{op} with notification (embedded NUL)", side, **checked,
                     way=f"{source.upper()} -> {destination.upper()}",
                     gbps=gigabytes_per_s(layout.payload, posted["total_ns"]),
                     p50_us=posted["total_ns"] / 1000, route=self._route(side, before))

    def notification(self, side: str, to_self: bool):
        message = NOTIF_WITH_NUL + (b" self " if to_self else b" alone ") + side.encode()
        target = side if to_self else self._other(side)
        before = self._pair.call(side, "routes")
        self._pair.call(side, "notify", to_self=to_self, message=message.hex())
        self._record("notification to itself" if to_self else "notification alone", side,
                     ok=self._expect(target, side, message), route=self._route(side, before),
                     way=f"{side.upper()} -> {target.upper()}")

    def nothing_left(self):
        """No side holds a notification that nobody sent, or one sent twice."""
        for side in "ab":
            left = self._pair.call(side, "notifs", count=1, timeout_s=0.2)["notifs"]
            self._record("no further notification", side, ok=not left, way=f"at {side.upper()}",
                         route="")

    def run(self):
        for side in "ab":
            for op in ("WRITE", "READ"):
                self.transfer(side, op, ONE_BLOCK, "straight")
                self.transfer(side, op, LARGE_BLOCKS, "shuffle")
                self.transfer(side, op, SMALL_BLOCKS, "shuffle")
        for side, op in (("a", "WRITE"), ("b", "READ")):
            self.repost(side, op)
        for side, op in (("a", "READ"), ("b", "WRITE")):
            self.transfer(side, op, LARGE_BLOCKS, "half", "prepped",
                          f"{op} {LARGE_BLOCKS.count // 2} blocks of a prepared list")
        for side, op in (("a", "WRITE"), ("b", "READ"), ("b", "WRITE"), ("a", "READ")):
            self.attached_notification(side, op)
        for side in "ab":
            self.notification(side, to_self=False)
            self.notification(side, to_self=True)
        self.nothing_left()


def show(rows: list[dict], title: str) -> None:
    def number(value, pattern):
        return "-" if value is None else format(value, pattern)

    def word(value):
        return "-" if value is None else "yes" if value else "NO"

    table = [[row["work"], row["way"], number(row["gbps"], ".2f"), number(row["p50_us"], ".0f"),
              number(row["bytes_verified"] or None, ",d"), word(row["guards_intact"]),
              row["route"] or "-", "ok" if row["ok"] else "DIFFERS"] for row in rows]
    write_table(title, COLUMNS, table, sys.stdout)


def parse_arguments(arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="ORBITE",
                        help=f"ORBITE (default: whatever it chooses), or another of: "
                             f"{', '.join(variants(PLUGIN_DIR))}")
    parser.add_argument("--plugin-dir", type=Path, default=PLUGIN_DIR,
                        help="folder with libplugin_ORBITE.so (default: build/nixl-plugins)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE as well")
    return parser.parse_args(arguments)


def main(arguments=None) -> int:
    options = parse_arguments(arguments)
    failure = None
    demo = None
    try:
        check_nixl()
        variant = pick_variant(options.backend, options.plugin_dir)
        size = region_bytes_for((ONE_BLOCK, LARGE_BLOCKS, SMALL_BLOCKS))
        with Pair(variant, size, seed=20260101, label="demo") as pair:
            demo = Demo(pair, size)
            demo.run()
    except SetupError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except WorkerFailed as error:
        failure = str(error)
    rows = demo.rows if demo is not None else []
    if rows:
        show(rows, f"NIXL agents over {variant.key}")
    ok = failure is None and bool(rows) and all(row["ok"] for row in rows)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(
            {"backend": variant.key, "ok": ok, "failure": failure, "rows": rows,
             "versions": version_facts()}, indent=2) + "\n", encoding="utf-8")
    if failure is not None:
        print(f"demo: {failure}", file=sys.stderr)
    wrong = sum(not row["ok"] for row in rows)
    verified = sum(row["bytes_verified"] for row in rows)
    print(f"{len(rows) - wrong} of {len(rows)} steps right, {verified:,} bytes verified"
          f"{'' if failure is None else ', stopped early'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
