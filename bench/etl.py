"""A plain Python step of an ETL job: it raises for a price that is not a number."""
import json
import sys


def clean(record):
    price = float(record["price"])
    return {"id": record["id"], "name": " ".join(record["name"].split()).lower(), "cents": round(100 * price)}


def process(batch):
    return [clean(record) for record in batch]


def main():
    """The same without gpurun, one record at a time."""
    with open(sys.argv[1], encoding="utf-8") as lines, open(sys.argv[2], "w", encoding="utf-8") as out:
        for line in lines:
            record = json.loads(line)
            try:
                result = clean(record)
            except Exception as error:
                result = {**record, "_error": repr(error)}
            out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
