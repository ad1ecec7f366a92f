"""What every kernel of the random jobs computes for a record."""


def value(text):
    return sum(text.encode()) % 997


def vector(text):
    return [float(len(text)), value(text) / 8, 0.5, -1.0]


def outcome(record, fixed):
    """Returns ("fail" | "drop" | "crash" | "ok", lines), lines being what replaces the record."""
    if not hasattr(record, "get"):
        return "fail", []
    do = record.get("do")
    if do in ("fail", "crash") and not fixed:
        return do, []
    if do == "drop":
        return do, []
    text = record.get("text") or ""
    line = {"id": record.get("id"), "v": value(text)}
    return "ok", [line, {**line, "v": line["v"] + 1}] if do == "two" else [line]
