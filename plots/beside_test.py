#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figure of what R2CCL costs without a fault, from rows made here."""
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import beside  # noqa: E402
import inputs  # noqa: E402
from numbers_of.beside import PORTS, SMALL, means_table, within_bound  # noqa: E402
import style  # noqa: E402
import tables  # noqa: E402

style.use()


def job(transport, size, seed, side, other, ratios):
    return {"transport": transport, "nccl": "2.99.1", "op": "allreduce", "bytes": size, "copies": 2, "seed": seed, "outcome": "ok", "side_ms": side, "other_ms": other,
            "ratios": ratios, "cpu_ratio": 1, "as_predicted": 1}


def results_with(folder, jobs, ports=(), small=()):
    """`ports`: jobs on NICs of a limited rate; `small`: of small sizes."""
    os.makedirs(os.path.join(folder, "tables"), exist_ok=True)
    tables.replace(folder, "beside", "beside", jobs)
    tables.replace(folder, "beside", PORTS, list(ports))
    tables.replace(folder, "beside", SMALL[0], list(small))
    with open(os.path.join(folder, "tables", "provenance.csv"), "w", encoding="utf-8") as file:
        file.write("set,tables,evidence,fabric,date,commit,cores,machine,command,note\nbeside,beside,emulated,vhca,2026-01-01,abc,4,\"A GPU, Linux\",c,n\n"
                   f"{SMALL[0]},beside,emulated,vhca,2026-01-01,abc,4,1 × A GPU,c,n\n"
                   f"{PORTS},beside,emulated,vhca,2026-01-01,abc,4,2 × A GPU,head_to_head.py --mbits 10000 --turns 8,n\n")
    return folder


class Beside(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(style.close)
        self.folder = folder.name

    def test_points_are_medians_by_jobs_and_intervals_need_jobs(self):
        small = [job("migrate_beside_ib", 8, seed, 0.044, 0.04, f"{ratio} {ratio}") for seed, ratio in enumerate((1.0, 1.01, 1.04))]
        jobs = [job("migrate_beside_ib", 1 << 16, seed, 0.09, 0.1, f"{ratio} {ratio}") for seed, ratio in enumerate((1.0, 1.01, 1.04))]
        jobs += [job("balance_beside_ib", 1 << 20, seed, 0.5, 0.4, f"1.0 {1 + seed / 100} 1.2") for seed in range(8)]
        jobs += [job("ib_beside_ib", 1 << 20, 1, 0.6, 0.4, "1.0 1.0")]
        ports = [job("migrate_beside_ib", 1 << 30, seed, 440, 440, f"{ratio} {ratio} 3") for seed, ratio in enumerate((0.998, 1.0, 1.005))]
        figure = beside.draw(beside.data(results_with(self.folder, jobs, ports, small)))
        drawn = style.drawn(figure)
        self.assertEqual(drawn["data:latency:migrate_beside_ib"], [(8, 44), (1 << 16, 90)])
        self.assertEqual(drawn["data:latency:ib_beside_ib"], [(8, 40), (1 << 16, 100)])
        (_, rate), = drawn["data:busbw:balance_beside_ib"]
        self.assertAlmostEqual(rate, (1 << 20) / 0.5e6)
        # In each job the IB transport runs too: nine times of 0.4 ms, one of 0.6 ms where it is on both sides.
        (_, rate), = drawn["data:busbw:ib_beside_ib"]
        self.assertAlmostEqual(rate, (1 << 20) / 0.4e6)
        self.assertAlmostEqual(drawn["data:ratio:migrate_beside_ib:8"][0][1], 3.05 / 3)  # the mean
        self.assertAlmostEqual(drawn["data:ratio:migrate_beside_ib:65536"][0][1], 1.01)
        self.assertAlmostEqual(drawn["data:ratio:balance_beside_ib:1048576"][0][1], 1.035)
        self.assertAlmostEqual(drawn["data:ratio:bound:1"][0][1], 1.03)
        self.assertAlmostEqual(drawn["data:ratio:bound:1048576"][0][1], 1 / 0.99)
        self.assertEqual([key for key in drawn if key.startswith("data:ports:")], ["data:ports:migrate_beside_ib:1073741824", "data:ports:bound:1048576"])
        self.assertAlmostEqual(drawn["data:ports:migrate_beside_ib:1073741824"][0][1], 1.001)  # the mean, not the median
        interval, = [lines.get_segments()[0] for lines in figure.axes[-1].collections]
        self.assertAlmostEqual(interval[1][1] - interval[0][1], 2 * 4.3027 * 0.0036056 / 3 ** 0.5, places=6)  # Student's quantile for three jobs
        self.assertIn("A GPU and NCCL 2.99.1 are real", " ".join(text.get_text().replace("\n", " ") for text in figure.texts))

    def test_a_job_that_failed_does_not_count(self):
        bad = job("migrate_beside_ib", 8, 1, 9, 1, "9.0") | {"outcome": "error"}
        good = job("migrate_beside_ib", 8, 2, 0.04, 0.04, "1.0")
        table = beside.data(results_with(self.folder, [bad, good], [good], [good]))
        self.assertEqual([one["ratio"] for one in table["jobs"]], [1.0])
        with self.assertRaises(inputs.NoData):
            beside.data(results_with(self.folder, [bad], [good], [good]))
        with self.assertRaises(inputs.NoData):
            beside.data(results_with(self.folder, [good], (), [good]))
        with self.assertRaises(inputs.NoData):
            beside.data(results_with(self.folder, [good], [good]))

    def test_few_jobs_on_limited_ports_have_the_interval_of_their_mean(self):
        jobs = [job("migrate_beside_ib", 10**8, seed, 50, 50, f"{ratio} {ratio} 3") | {"cpu_ratio": ratio + 0.01} for seed, ratio in enumerate((0.998, 1.0, 1.002))]
        jobs += [job("ib_beside_ib", 10**8, 1, 50, 50, "1.02 1.02")]
        mine, control = means_table(results_with(self.folder, [], jobs), PORTS).splitlines()[2:]
        # Two ports of 1.25 GB/s carry 100 MB in 40 ms. Student's quantile for three jobs is 4.3027.
        self.assertEqual(mine, "| 95.3674 MiB | R2CCL mode 1 | 3 | 9 | 50.0 | 0.800 | 1.0000 | 0.9950–1.0050 | met | 1.0100 | 1.0050–1.0150 |")
        self.assertEqual(control, "| 95.3674 MiB | NCCL's IB (control) | 1 | 2 | 50.0 | 0.800 | 1.0200 | – | – | 1.0000 | – |")

    def test_ports_without_a_limit_have_no_column_of_their_rate(self):
        jobs = [job("migrate_beside_ib", 8, seed, 50, 50, f"{ratio} {ratio} 3") for seed, ratio in enumerate((0.998, 1.0, 1.002))]
        text = means_table(results_with(self.folder, [], (), jobs), *SMALL)
        self.assertNotIn("of its ports' rate", text)
        self.assertEqual(text.splitlines()[2:], ["| 8 B | R2CCL mode 1 | 3 | 9 | 50.0 | 1.0000 | 0.9950–1.0050 | met | 1.0000 | 1.0000–1.0000 |"])

    def test_what_an_interval_says_of_its_bound(self):
        for size, between, said in ((8, (0.99, 1.03), "met"), (8, (1.031, 1.2), "missed"), (8, (1.0, 1.04), "undecided"), (64 * 1024, (1.0, 1.02), "met"),
                                    (1 << 20, (1.0, 1.02), "undecided"), (1 << 20, (1.0, 1.01), "met"), (1 << 30, (1.02, 1.03), "missed"), (8, None, "–"), (256 * 1024, (1, 1), "–")):
            self.assertEqual(within_bound(size, between), said, (size, between))


if __name__ == "__main__":
    unittest.main()
