from protein import plots

figure = plots.front("mine")  # first run function_sweep.py in the same folder
figure.savefig("front.svg")

plots.parallel("mine", params=["lr", "steps"]).savefig("parallel.png", dpi=150)
