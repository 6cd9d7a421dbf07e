import math

import hydra


@hydra.main(version_base=None, config_path=".", config_name="job")
def train(config):
    for epoch in range(1, 5):
        loss = (math.log10(config.lr) + 2) ** 2 + config.layers / 10 + 1 / epoch
    return loss


if __name__ == "__main__":
    train()
