from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from protein import Float, Integer, Space, Sweep

x, x_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
space = Space(
    [
        Float("lr", 1e-4, 1e-1, scale="log"),
        Integer("width", 8, 256, scale="pow2"),
        Integer("epochs", 1, 60, scale="log"),
    ],
    cost_parameter="epochs",
)


def train(params, report):
    model = MLPClassifier([params["width"]], learning_rate_init=params["lr"], random_state=report.seed)
    for epoch in range(1, params["epochs"] + 1):
        model.partial_fit(x / 16, y, classes=range(10))
        report(epoch, model.score(x_test / 16, y_test))  # one point of the learning curve
    return model.score(x_test / 16, y_test)


result = Sweep(space, budget="6s", name="digits").run(train)  # run it again: it goes on where it stopped
print(result.best.score, dict(result.best.params))  # or: protein best digits, protein pareto digits
