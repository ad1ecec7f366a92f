"""Clean orders: normalize the address, drop test orders, reject orders without an amount.

    gpurun run -k clean.py 'orders/*.jsonl.gz' more.parquet -o clean/ --output-format jsonl.gz --errors bad.jsonl
"""


def process(batch):
    return [clean(dict(record)) for record in batch]


def clean(order):
    order["email"] = (order.get("email") or "").strip().lower()
    if order["email"].endswith("@example.test"):
        return None                                     # drop it
    if not isinstance(order.get("amount"), (int, float)):
        return ValueError("the order has no amount")    # fail it, and only it
    order["amount"] = round(order["amount"] * 1.0, 2)
    return order
