def process(batch):
    return {"text": [text.strip().lower() for text in batch["text"]]}
