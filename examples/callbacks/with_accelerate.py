import argparse

import torch
from accelerate import Accelerator

import protein.callbacks.accelerate

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--epochs", type=int)
given = parser.parse_args()

torch.manual_seed(0)
x = torch.randn(400, 4)
y = (x[:, 0].sin() + x[:, 1] * x[:, 2])[:, None]
tracker = protein.callbacks.accelerate.ProteinTracker("loss")
accelerator = Accelerator(cpu=True, log_with=tracker)
accelerator.init_trackers("digits")
model = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=given.rate)
model, optimizer = accelerator.prepare(model, optimizer)
if tracker.checkpoint:
    accelerator.load_state(tracker.checkpoint)
for epoch in range(tracker.steps_behind + 1, given.epochs + 1):
    for rows in torch.randperm(300).split(50):
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(x[rows]), y[rows]))
        optimizer.step()
    with torch.no_grad():
        accelerator.log({"loss": torch.nn.functional.mse_loss(model(x[300:]), y[300:]).item()}, step=epoch)
    tracker.save(accelerator, epoch)
accelerator.end_training()
