import argparse
import json
import math

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--layers", type=int)
given = parser.parse_args()
for epoch in range(1, 5):
    loss = (math.log10(given.lr) + 2) ** 2 + given.layers / 10 + 1 / epoch
    print(json.dumps({"steps": epoch, "score": loss}))
