import protein

sweep = protein.load("mine")  # first run function_sweep.py in the same folder
trials = sweep.trials[sweep.trials["state"] == "complete"]
print(trials.sort_values("score", ascending=False)[["lr", "params.steps", "score", "run_seconds"]].head())

print(f"recommended: trial {sweep.best.name}, lr {sweep.best['lr']:.4f}, {sweep.best['params.steps']} steps")
print(f"correlation of log steps and score: {trials['params.steps'].corr(trials['score'], method='spearman'):.2f}")
curves = sweep.curves
print(f"{len(curves)} points of learning curves, of {curves['trial'].nunique()} trials")
