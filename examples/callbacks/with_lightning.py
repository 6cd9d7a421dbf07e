import argparse

import lightning
import torch

import protein.callbacks.lightning

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--epochs", type=int)
parser.add_argument("--devices", type=int, default=1)
given = parser.parse_args()


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, batch):
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def validation_step(self, batch):
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=given.rate)


lightning.seed_everything(0)
x = torch.randn(400, 4)
y = (x[:, 0].sin() + x[:, 1] * x[:, 2])[:, None]
train, test = torch.utils.data.TensorDataset(x[:300], y[:300]), torch.utils.data.TensorDataset(x[300:], y[300:])
callback = protein.callbacks.lightning.ProteinCallback("val_loss", count="epochs")
trainer = lightning.Trainer(
    max_epochs=given.epochs,
    accelerator="cpu",
    devices=given.devices,
    callbacks=[callback],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
loaders = (
    torch.utils.data.DataLoader(train, batch_size=50, shuffle=True),
    torch.utils.data.DataLoader(test, batch_size=100),
)
trainer.fit(Regression(), *loaders, ckpt_path=callback.checkpoint)
