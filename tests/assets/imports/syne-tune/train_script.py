import argparse
import math

from syne_tune import Reporter

p = argparse.ArgumentParser()
p.add_argument("--lr", type=float)
p.add_argument("--layers", type=int)
p.add_argument("--act")
p.add_argument("--epochs", type=int)
a, _ = p.parse_known_args()
report = Reporter()
for epoch in range(1, a.epochs + 1):
    if a.layers == 3 and a.act == "tanh":
        raise RuntimeError("out of luck")
    loss = (math.log10(a.lr) + 2) ** 2 + 1 / epoch
    report(epoch=epoch, loss=loss, acc=1 / (1 + loss))
