import argparse
import json

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float)
parser.add_argument("--epochs", type=int)
given = parser.parse_args()

x, x_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
model = SGDClassifier(alpha=given.alpha, random_state=0)
for epoch in range(1, given.epochs + 1):
    model.partial_fit(x, y, classes=range(10))
    print(json.dumps({"steps": epoch, "score": model.score(x_test, y_test)}))
