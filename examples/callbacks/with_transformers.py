import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import protein.callbacks.transformers

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
parser.add_argument("--epochs", type=int)
given = parser.parse_args()

torch.manual_seed(0)
rows = [{"input_ids": row, "labels": row} for row in (torch.arange(16) + torch.randint(0, 16, (64, 1))) % 16]
config = GPT2Config(
    vocab_size=16, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0, pad_token_id=0
)
arguments = TrainingArguments(
    learning_rate=given.rate,
    num_train_epochs=given.epochs,
    eval_strategy="epoch",
    save_strategy="epoch",
    save_total_limit=1,
    report_to="none",
    use_cpu=True,
)
callback = protein.callbacks.transformers.ProteinCallback("eval_loss", count="epochs")
trainer = Trainer(
    GPT2LMHeadModel(config), arguments, train_dataset=rows[:48], eval_dataset=rows[48:], callbacks=[callback]
)
trainer.train(resume_from_checkpoint=callback.checkpoint)
