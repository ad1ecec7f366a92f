"""Prints the results of run.py as one table with the ratios that are wanted."""

import sys


def show(results, out=sys.stdout):
    for shape, r in results.items():
        print("\n%s" % shape, file=out)
        for name, value in r.items():
            if name == "model":
                for order in ("file", "sorted"):
                    line(out, "model alone, %s order" % order, value[order], "%.0f %% of the slots are tokens, %.2f M tokens/s"
                         % (100 * value[order + "_filled"], value[order + "_tokens"] / 1e6))
            elif name == "tokenizer":
                line(out, "tokenizer alone, one process per core", value["tokenizer"])
            elif name == "script":
                line(out, "plain script, encode() only", value["encode"])
                line(out, "plain script, JSON in and out", value["json"])
            else:
                line(out, "gpurun, " + name, value["steady"], "wall %.0f s for %s records  %s" % (value["wall"], format(value["records"], ","), value["flags"]))
        for text, got, wanted in ratios(shape, r):
            ratio(out, text, got, wanted)


def line(out, name, rate, note=""):
    print("  %-40s %12s records/s   %s" % (name, format(int(rate), ","), note), file=out)


def ratio(out, text, got, wanted):
    print("  %-62s %6.2f   %s" % (text, got, "wanted " + wanted if wanted else ""), file=out)


def ratios(shape, r):
    """Yield (what, ratio, wanted) for the results that are there."""
    fixed = [value for name, value in r.items() if name.startswith("workers ") or name == "best fixed"]
    if "default" in r and fixed:
        yield "default flags, steady, of the best fixed count", r["default"]["steady"] / max(v["steady"] for v in fixed), ">= 0.90"
    if "default" in r and "best fixed" in r:
        yield "default flags, wall time, of the best fixed count", r["default"]["wall"] / r["best fixed"]["wall"], "<= 1.25"
    if "default" in r and "script" in r:
        yield "default flags against the plain script", r["default"]["steady"] / r["script"]["json"], ">= 8"
    short = [value["wall"] for name, value in r.items() if name.startswith("short, workers ")]
    if "short, default" in r and short:
        yield "short job, default flags, wall time, of the best fixed count", r["short, default"]["wall"] / min(short), "<= 1.15"
    if "model" not in r or "tokenizer" not in r:
        return
    if "prepared" in r:
        limit = min(r["model"]["file"], r["tokenizer"]["tokenizer"])
        yield "setup_prepare, one worker, of the smaller limit in file order", r["prepared"]["steady"] / limit, ">= 0.80"
    if "grouped" in r:
        limit = min(r["model"]["sorted"], r["tokenizer"]["tokenizer"])
        yield "grouped, of the smaller limit sorted by length", r["grouped"]["steady"] / limit, ">= 0.85"
        yield "grouped, M tokens/s", r["grouped"]["steady"] * r["model"]["sorted_tokens"] / r["model"]["sorted"] / 1e6, ""
