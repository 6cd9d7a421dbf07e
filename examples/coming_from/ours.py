import math

from protein import Float, Integer, Space, Sweep


def train(params, report):
    for epoch in range(1, 5):
        loss = (math.log10(params["lr"]) + 2) ** 2 + params["layers"] / 10 + 1 / epoch
        report(epoch, loss)
    return loss


space = Space([Float("lr", 1e-4, 0.1, scale="log"), Integer("layers", 1, 4)])
result = Sweep(space, name="job", direction="minimize", max_trials=20).run(train)
print(result.best.score, dict(result.best.params))
