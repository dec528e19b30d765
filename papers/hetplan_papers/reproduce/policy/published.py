"""What the RAMSIS paper (EuroSys 2024) and its artifact state in figures and words."""

from __future__ import annotations

__all__ = [
    "ARTIFACT_CONSTANT",
    "ARTIFACT_TRACE",
    "CONSTANT_LATE",
    "CONSTANT_WORDS",
    "FEWER_WORKERS",
    "LOADS",
    "RUNTIMES_S",
    "SLOS_MS",
    "TRACE_LATE",
    "TRACE_WORDS",
    "TRACE_WORKERS",
]

SLOS_MS = {"image": (150, 300, 500), "text": (100, 200, 300)}
LOADS = tuple(range(400, 4001, 400))
TRACE_WORKERS = tuple(range(20, 101, 10))


def _columns(text: str) -> dict[str, list[float]]:
    """Percent late of RAMSIS, Jellyfish+ and ModelSwitching, a line per load or number of workers."""
    rows = [[float(x) for x in line.split()] for line in text.strip().splitlines()]
    ways = ("ramsis", "jellyfish", "modelswitching")
    return {way: [row[k] for row in rows] for k, way in enumerate(ways) if k < len(rows[0])}


CONSTANT_LATE = {
    ("image", 150): _columns("""
        0.0669 0.0000 1.2377
        0.1089 0.2302 1.3180
        0.4990 0.0279 0.0306
        0.3637 0.1087 0.0543
        0.3076 0.0150 0.0000
        0.0516 0.0140 0.0084
        0.2288 0.0695 0.0084
        0.4786 3.6645 0.0587
        2.4540 2.7240 0.0019
        19.460 24.119 97.874"""),
    ("image", 300): _columns("""
        0.0252 0.0419 0.0000
        0.4402 0.2306 2.6245
        0.0725 0.8504 1.4995
        0.3390 0.0000 0.0084
        0.2876 0.0067 0.0284
        0.0168 0.1340 0.1173
        0.2278 1.0823 0.0970
        0.0745 0.1419 0.0126
        0.3375 0.6982 0.0000
        4.3920 4.2465 0.0210"""),
    ("image", 500): _columns("""
        0.5038 0.0000 0.0000
        0.7513 0.0587 0.5998
        0.1312 0.2090 0.6742
        0.2324 0.1366 1.7317
        0.1739 0.0938 0.0033
        0.0112 0.3522 0.0028
        0.0239 0.4759 0.1678
        0.0935 0.6393 0.0032
        0.5560 0.3343 0.1402
        1.7970 2.8462 0.7437"""),
}
"""Table 4: percent late under constant load with 60 workers, 400 to 4000 queries per second."""

TRACE_LATE = {
    ("image", 150): _columns("""
        93.38 100.00 100.00
        0.6430 0.8607 0.9707
        0.2296 0.6137 1.3070
        0.0500 0.1041 0.2030
        0.1277 0.4141 0.4136
        0.2231 0.7234 0.2368
        0.4329 0.8292 0.6080
        0.4914 0.1652 0.2141
        0.4428 0.5811 0.4767"""),
    ("image", 300): _columns("""
        81.77 99.90 99.90
        0.4408 0.0047 0.0121
        0.0369 0.3482 1.0709
        0.0297 0.0588 0.1464
        0.1471 0.2260 0.6517
        0.5036 0.0913 0.0937
        0.2226 1.0460 0.7470
        0.1132 0.2618 0.2861
        0.3213 0.4693 0.5000"""),
    ("image", 500): _columns("""
        58.61 99.76 99.78
        0.0592 0.2152 0.1474
        0.1023 0.3209 0.2147
        0.0129 0.0498 0.1043
        0.1607 0.0863 0.2296
        0.2586 0.0556 0.1523
        0.1540 0.0824 0.3155
        0.1117 0.1972 0.2042
        0.4201 0.2911 0.1949"""),
    ("text", 100): _columns("""
        0.0009 0.0032 0.2244
        0.0013 0.6427 0.0005
        0.0157 0.0016 0.0013
        0.0354 0.0009 0.0406
        0.0557 0.0063 0.0615
        0.1366 0.0011 0.1308
        0.0680 0.1382 0.0775
        0.0122 0.0063 0.0549
        0.0201 0.6011 0.2081"""),
    ("text", 200): _columns("""
        0.0001 0.0144 0.0727
        0.0051 0.0005 0.0023
        0.0174 0.0386 0.0188
        0.0492 0.0081 0.0863
        0.4642 0.0892 0.7564
        0.0235 0.0437 0.0980
        0.1376 0.2673 0.3012
        0.0187 0.0163 0.0540
        0.0647 0.6527 0.0678"""),
    ("text", 300): _columns("""
        0.0009 0.0000 0.0043
        0.0101 0.0004 0.0000
        0.0024 0.0072 0.0083
        0.0119 0.0293 0.0964
        0.0591 0.0416 0.0580
        0.0281 0.0029 0.0080
        0.0049 0.0002 0.0165
        0.0044 0.0002 0.0029
        0.0162 0.0193 0.0557"""),
}
"""Table 3: percent late on the Twitter trace with 20 to 100 workers."""

CONSTANT_WORDS = {
    "image": {"modelswitching": (4.82, 15.42), "jellyfish": (4.95, 15.42)},
    "text": {"modelswitching": (2.25, 4.88), "jellyfish": (2.26, 4.88)},
}
"""Section 7.2: mean and largest gain of the prototype in percent of accuracy, over loads and SLOs."""

TRACE_WORDS = {
    "image": {"modelswitching": (4.43, 15.09), "jellyfish": (4.35, 15.08)},
    "text": {"modelswitching": (1.93, 3.85), "jellyfish": (2.01, 4.55)},
}
"""Section 7.1: the same on the trace, over workers and SLOs."""

FEWER_WORKERS = {
    "image": {"modelswitching": (20.01, 50.00), "jellyfish": (17.53, 42.86)},
    "text": {"modelswitching": (25.31, 44.44), "jellyfish": (31.25, 75.00)},
}
"""Section 7.1: mean and largest share of workers (percent) saved at the baseline's accuracy."""

ARTIFACT_CONSTANT = {"jellyfish": (3.70, 15.04), "modelswitching": (1.84, 6.71)}
ARTIFACT_TRACE = {"jellyfish": (5.70, 8.07), "modelswitching": (3.48, 4.63)}
"""Appendix A.4: mean and largest gain that the artifact's simulation prints (image, 150 ms; 60 to 80 workers).

Its means are over all loads and numbers of workers, those included that nobody carries.
"""

RUNTIMES_S = {
    ("md", "variable", 9): 3693.53,
    ("fld{100}", "variable", 9): 3014.89,
    ("md", "max", 9): 115.50,
    ("fld{100}", "max", 9): 132.20,
    ("fld{10}", "max", 9): 14.62,
    ("md", "max", 60): None,
    ("fld{100}", "max", 60): 1355.09,
    ("fld{10}", "max", 60): 148.87,
    ("fld{100}", "variable", 60): None,
    ("md", "variable", 60): None,
}
"""Table 2: seconds to make a policy; None is over 24 hours."""
