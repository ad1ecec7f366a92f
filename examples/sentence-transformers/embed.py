"""Embed texts with a model of sentence-transformers.

    gpurun run -k embed.py --kernel-config '{"model":"all-MiniLM-L6-v2"}' texts.jsonl -o out.jsonl
"""

from sentence_transformers import SentenceTransformer

requires = ["sentence-transformers"]
batch_size = 256
group_by = "text"        # batches of texts of similar length: less padding


def setup(ctx):
    global model
    model = SentenceTransformer(ctx.config["model"], device=ctx.device)
    if ctx.device != "cpu":
        model.half()


def process(batch):
    return {"embedding": model.encode(batch["text"], batch_size=len(batch), convert_to_tensor=True, show_progress_bar=False)}
