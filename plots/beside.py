#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What R2CCL costs NCCL's AllReduce without a fault, beside NCCL's own IB transport in the same jobs: latency, bus bandwidth, and the ratio of the
times. In each job two transports took turns, so only ratios of one job are compared; the bounds are those that the project sets itself.
One panel has the ratios where NICs have no limit, and one those on NICs of a limited rate. Points of small sizes
and of limited NICs are means of the jobs, the others medians.

    python3 plots/beside.py --results results --out DIR

Reads the sets `beside`, `beside_2`, `beside_3`, `beside_ack_soon`, of small sizes `beside_small`, `_2` and `_3` and, of a limited rate, `beside_ports` of results/tables/beside.csv
(harness/workload/nccl/head_to_head.py --table beside)."""

import statistics
import sys

import inputs
import style
import tables
from numbers_of.beside import COST_BOUNDS, MEASURED, PORTS, SMALL, port_mbits
from numbers_of.words import mean_between, median_between

NAME = "beside"
COMMAND = "harness/workload/nccl/head_to_head.py --table beside, again with --sizes 8B,512B,4KiB,32KiB and with --mbits 10000; plots/collect.py head_to_head beside (beside_small, beside_ports) FILE"
# Transport: label, colour, marker; the control is the IB transport in turns with itself.
TRANSPORTS = {"ib_beside_ib": ("NCCL's IB transport", style.ORANGE, "^"), "migrate_beside_ib": ("R2CCL, live migration", style.BLUE, "o"),
              "balance_beside_ib": ("R2CCL, Balance", style.GREEN, "D")}
LATENCY = 64 * 1024  # the largest size whose latency counts
MEANS, MEDIANS = (statistics.mean, mean_between), (statistics.median, median_between)


def data(results):
    """{"jobs": those without a limit, "small": those of small sizes without a limit, "ports": those on NICs of `mbits`, …}"""
    rows = [row for row in tables.read(results, "beside") if row["transport"] in TRANSPORTS and row["outcome"] == "ok"]
    jobs = {name: [{"transport": row["transport"], "bytes": int(row["bytes"]), "side_ms": float(row["side_ms"]), "other_ms": float(row["other_ms"]),
                    "ratio": statistics.median(float(ratio) for ratio in row["ratios"].split())} for row in rows if row["set"] in sets]
            for name, sets in (("jobs", MEASURED), ("small", SMALL), ("ports", (PORTS,)))}
    if not all(jobs.values()):
        raise inputs.NoData(COMMAND)
    origins = [tables.provenance(results, name) for name in sorted({row["set"] for row in rows if row["set"] in (*MEASURED, *SMALL, PORTS)})]
    return {**jobs, "mbits": port_mbits(results, PORTS), "evidence": inputs.one_evidence([origin["evidence"] for origin in origins]),
            "machine": sorted({origin["machine"].split(",")[0].split("× ")[-1] for origin in origins}), "nccl": sorted({row["nccl"] for row in rows if row["set"] in (*MEASURED, *SMALL, PORTS)})}


def times(jobs):
    """{(transport, bytes): [ms of a job]}; of NCCL's IB transport in every job."""
    found = {}
    for job in jobs:
        found.setdefault((job["transport"], job["bytes"]), []).append(job["side_ms"])
        found.setdefault(("ib_beside_ib", job["bytes"]), []).append(job["other_ms"])
    return found


def draw_absolute(axes, jobs, name, of_ms):
    for transport, (_, colour, marker) in TRANSPORTS.items():
        own = sorted((count, of_ms(count, statistics.median(found))) for (t, count), found in times(jobs).items()
                     if t == transport and (count <= LATENCY) == (name == "latency"))
        axes.plot([count for count, _ in own], [value for _, value in own], marker=marker, markersize=3.2, color=colour, linewidth=0.9, gid=f"data:{name}:{transport}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")


def sized(axes, counts):
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(style.ticker.FixedLocator([count for count in counts if not any(count < other < 4 * count for other in counts)]))  # labels with room
    axes.xaxis.set_minor_locator(style.ticker.NullLocator())
    axes.xaxis.set_major_formatter(style.ticker.FuncFormatter(inputs.size))
    for label in axes.get_xticklabels():
        label.set_rotation(40)
        label.set_ha("right")


def draw_ratio(axes, jobs, name, of_size):
    """`of_size(bytes)`: (the middle of the jobs of a point, its interval). An interval is (low, high), or None where there are too few jobs, which then are drawn one by one."""
    sizes = sorted({job["bytes"] for job in jobs})
    place = {count: number for number, count in enumerate(sizes)}
    for number, (transport, (_, colour, marker)) in enumerate(TRANSPORTS.items()):
        for count in sizes:
            middle, interval = of_size(count)
            own = [job["ratio"] for job in jobs if job["transport"] == transport and job["bytes"] == count]
            if not own:
                continue
            x = place[count] + (number - 1) * 0.26
            between = interval(own)
            if between:
                axes.vlines([x], *between, color=colour, linewidth=1.1)
            else:
                axes.plot([x] * len(own), own, linestyle="", marker="_", markersize=4, color=colour, alpha=0.6)
            axes.plot([x], [middle(own)], linestyle="", marker=marker, markersize=3.2, color=colour, gid=f"data:{name}:{transport}:{count}")
    for low, high, bound in COST_BOUNDS:
        inside = [place[count] for count in sizes if low <= count <= high]
        if inside:
            axes.plot([min(inside) - 0.5, max(inside) + 0.5], [bound, bound], color=style.INK, linewidth=0.8, linestyle=(0, (4, 2)), gid=f"data:{name}:bound:{low}")
    axes.axhline(1, color="#9A9A9A", linewidth=0.6)
    axes.set_xticks(range(len(sizes)), [inputs.size(count) for count in sizes], rotation=40, ha="right")
    axes.set_xlim(-0.6, len(sizes) - 0.4)
    axes.grid(axis="x", visible=False)


def draw(table):
    jobs, few = table["jobs"] + table["small"], {job["bytes"] for job in table["small"]}
    figure = style.pyplot.figure(figsize=(style.DOUBLE_COLUMN, 3.1))
    whole = figure.add_gridspec(1, 3, width_ratios=[1, 1.75, 1.35], left=0.055, right=0.995, top=0.85, bottom=0.23, wspace=0.27)
    column = whole[0].subgridspec(2, 1, hspace=1.2)
    latency, busbw, ratio, ports = (figure.add_subplot(place) for place in (column[0], column[1], whole[1], whole[2]))
    draw_absolute(latency, jobs, "latency", lambda _, ms: 1e3 * ms)
    # nccl-tests' bus bandwidth of an AllReduce over two ranks: 2 (2 - 1) / 2 times the bytes.
    draw_absolute(busbw, jobs, "busbw", lambda count, ms: count / ms / 1e6)
    for axes, small in ((latency, True), (busbw, False)):
        sized(axes, sorted({job["bytes"] for job in jobs if (job["bytes"] <= LATENCY) == small}))
        axes.yaxis.set_major_formatter(style.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(style.ticker.NullFormatter())
    latency.set_yticks([30, 50, 100])
    busbw.set_yticks([1, 2, 5, 10])
    draw_ratio(ratio, jobs, "ratio", lambda count: MEANS if count in few else MEDIANS)
    ratio.set_ylim(0.9, 1.1)
    ratio.yaxis.set_major_locator(style.ticker.MultipleLocator(0.05))
    draw_ratio(ports, table["ports"], "ports", lambda _: MEANS)
    ports.set_ylim(0.988, 1.012)
    ports.yaxis.set_major_locator(style.ticker.MultipleLocator(0.005))
    for axes, title in ((latency, "latency, µs"), (busbw, "bus bandwidth, GB/s"), (ratio, "time / NCCL's IB, NICs without a limit"), (ports, f"time / NCCL's IB, {table['mbits'] / 1000:g} Gbit/s NICs")):
        axes.set_title(title, loc="left", fontsize=7.5)
    handles = [style.lines.Line2D([], [], linestyle="", marker=marker, markersize=4.6, color=colour, label=label) for label, colour, marker in TRANSPORTS.values()]
    handles.append(style.lines.Line2D([], [], color=style.INK, linewidth=0.8, linestyle=(0, (4, 2)), label="bound"))
    figure.legend(handles=handles, loc="upper left", ncol=4, columnspacing=1.2, handletextpad=0.3, fontsize=7)
    style.footer(figure, f"evidence: {table['evidence']} ({', '.join(table['machine'])} and NCCL {', '.join(table['nccl'])} are real, the NICs virtual, in the three left panels without a limit) · "
                         "two ranks; in each job two transports take turns, also the IB transport with itself · medians by jobs, on the right and below 64 KiB means; lines: 95 % intervals; "
                         "dashes: single jobs, where few")
    return figure


if __name__ == "__main__":
    sys.exit(inputs.run_main(sys.modules[__name__], __doc__))
