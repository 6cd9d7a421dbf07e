import math

import neps


class Job(neps.PipelineSpace):
    lr = neps.Float(1e-4, 0.1, log=True)
    layers = neps.Integer(1, 4)
    epochs = neps.IntegerFidelity(1, 4)


def train(lr, layers, epochs):
    return (math.log10(lr) + 2) ** 2 + layers / 10 + 1 / epochs


neps.run(train, Job(), root_directory="job", worker_evaluations_to_spend=20)
