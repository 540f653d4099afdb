"""The exact answer: a forward pass in float64 over the dequantised weights of a GGUF file.

    python3 exact --steps 16 --top 20 [--kv int16] MODEL.gguf ... < prompts.json > answers.jsonl
    python3 exact --pool last MODEL.gguf < prompts.json > rows.jsonl
    python3 exact --draft --steps 3 MODEL.gguf < prompts.json > drafts.jsonl
    python3 exact --drafter EAGLE3.gguf --steps 3 MODEL.gguf < prompts.json > drafts.jsonl
    python3 exact --score MODEL.gguf < prompts.json > log-probabilities.jsonl

Follows the greedy tokens from each prompt of a JSON list of lists, and prints one line a model and prompt:
{"model", "prompt", "steps": [{"token", "top": [[id, log-probability], ...]}, ...]}. With --kv int16 each step has "rounded" too: the
log-probabilities of the same ids where attention rounds as it does on the CPU. With --round PATTERN, which may be repeated,
it has "inputs": by pattern those of the same ids where the inputs of matrices that it matches are rounded to 8 bits. With --pool it prints each prompt's row
instead, a JSON array a line: the normed rows' mean, the first (cls) or the last, or the logits of the ranking head (rank).
Plain on purpose: numpy and the package gguf's own dequantisers. model.py has what all have, and each family a file of its own.
"""
import argparse
import json
import sys
from pathlib import Path

from families import open_model


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--kv", choices=["int16"])
    parser.add_argument("--round", action="append", default=[], metavar="PATTERN")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--pool", choices=["mean", "cls", "last", "rank"])
    parser.add_argument("--score", action="store_true", help="print the log-probability of each token but the first")
    parser.add_argument("--draft", action="store_true", help="follow the layer that drafts instead of the model")
    parser.add_argument("--drafter", metavar="FILE", help="follow this drafter of the model")
    parser.add_argument("--facts", type=json.loads, help="traits of a family without a class of its own, as JSON")
    args = parser.parse_args()
    prompts = json.load(sys.stdin)
    for path in args.models:
        model = open_model(path, args.context, args.facts)
        for prompt in prompts:
            if args.score:
                print(json.dumps(model.score(prompt).tolist()), flush=True)
                continue
            if args.pool:
                print(json.dumps(model.pooled(prompt, args.pool).tolist()), flush=True)
                continue
            if args.drafter:
                steps = open_model(args.drafter, args.context).drafts_of(model, prompt, args.steps, args.top)
            elif args.draft:
                steps = model.drafts(prompt, args.steps, args.top)
            else:
                steps = model.greedy(prompt, args.steps, args.top, args.kv == "int16", args.round)
            print(json.dumps({"model": Path(path).stem, "prompt": prompt, "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
