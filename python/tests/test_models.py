"""Models against the estimators they come from: the program's numbers are the integer model's, and its answers the estimator's."""

import json
import re

import numpy as np
import pytest
import toroid
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from toroid import _core, models
from toroid.models import Layer, ModelError, Network

CANCER, IRIS, DIABETES = load_breast_cancer(), load_iris(), load_diabetes()


def evaluate(text, columns):
    """The outputs of a graph in clear."""
    outputs = _core.evaluate(text, {name: np.asarray(column).tolist() for name, column in columns.items()})
    return {name: np.array(column) for name, column in outputs.items()}


def check(model, X):
    """The program gives the integer model's scores on these rows."""
    columns = model.quantise(X)
    outputs = evaluate(model.graph(), columns)
    scores = model.predict_quantized(columns)
    assert scores.dtype == np.int64 and scores.shape == (len(X), len(model.outputs))
    for k, name in enumerate(model.outputs):
        assert np.array_equal(np.broadcast_to(outputs[name], len(X)), scores[:, k])
    return scores


TREES = [
    (DecisionTreeClassifier(max_depth=4, random_state=0), CANCER),
    (DecisionTreeClassifier(random_state=0), IRIS),
    (RandomForestClassifier(10, max_depth=5, random_state=0), CANCER),
    (RandomForestClassifier(8, max_depth=4, random_state=0), IRIS),
    (ExtraTreesClassifier(6, max_depth=5, random_state=0), CANCER),
    (GradientBoostingClassifier(n_estimators=10, random_state=0), CANCER),
    (GradientBoostingClassifier(n_estimators=6, loss="exponential", random_state=0), CANCER),
    (GradientBoostingClassifier(n_estimators=4, random_state=0), IRIS),
    (HistGradientBoostingClassifier(max_iter=5, random_state=0), CANCER),
    (HistGradientBoostingClassifier(max_iter=3, random_state=0), IRIS),
]


@pytest.mark.parametrize(("estimator", "data"), TREES, ids=lambda value: type(value).__name__)
def test_trees_classify_as_the_estimator(estimator, data):
    estimator.fit(data.data[::2], data.target[::2])
    model = models.compile(estimator, data.data[::2])
    scores = check(model, data.data)
    proba = estimator.predict_proba(data.data)
    assert np.allclose(model.predict_proba(scores), proba, atol=0.002)
    # Rounded leaves can only change answers that are all but a tie.
    ordered = np.sort(proba, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > 0.004
    assert clear.mean() > 0.9
    assert np.array_equal(model.predict(scores)[clear], estimator.predict(data.data)[clear])


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeRegressor(max_depth=5, random_state=0),
        RandomForestRegressor(5, max_depth=4, random_state=0),
        GradientBoostingRegressor(n_estimators=12, random_state=0),
        HistGradientBoostingRegressor(max_iter=5, random_state=0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_trees_regress_as_the_estimator(estimator):
    X, y = DIABETES.data, DIABETES.target
    estimator.fit(X, y)
    model = models.compile(estimator, X)
    scores = check(model, X)
    assert np.abs(model.predict(scores) - estimator.predict(X)).max() < 0.1


@pytest.mark.parametrize("table_bits", [2, 3, 5, 9])
def test_trees_are_cut_where_a_table_ends(table_bits):
    X, y = CANCER.data, CANCER.target
    estimator = RandomForestClassifier(4, random_state=1).fit(X, y)
    model = models.compile(estimator, X, table_bits=table_bits)
    check(model, X)
    for line in model.graph().splitlines():
        if match := re.search(r"table\(_.*\[(.*)\]", line):
            assert match[1].count(",") < 1 << table_bits


def test_values_on_a_threshold_go_where_the_estimator_sends_them():
    X, y = IRIS.data, IRIS.target
    estimator = DecisionTreeClassifier(random_state=0).fit(X, y)
    model = models.compile(estimator, X)
    thresholds = {(int(j), t) for j, t in zip(estimator.tree_.feature, estimator.tree_.threshold) if j >= 0}
    rows = []
    for j, threshold in sorted(thresholds):
        for value in (threshold, np.nextafter(np.float32(threshold), np.float32(9)), np.nextafter(np.float32(threshold), np.float32(0))):
            for row in X[::10]:
                rows.append(np.where(np.arange(4) == j, value, row))
    rows = np.array(rows)
    assert np.array_equal(model.predict(check(model, rows)), estimator.predict(rows))


def test_uniform_features_serve_several_models():
    X, y = CANCER.data, CANCER.target
    tree = models.compile(DecisionTreeClassifier(max_depth=4, random_state=0).fit(X, y), X, quantise="uniform", bits=8)
    forest = models.compile(RandomForestClassifier(5, max_depth=4, random_state=0).fit(X, y), X, quantise="uniform", bits=8)
    check(tree, X)
    check(forest, X)
    shared = set(tree.columns) & set(forest.columns)
    assert shared
    for name in shared:
        assert np.array_equal(tree.quantise(X)[name], forest.quantise(X)[name])
    assert tree.score(X, y) > 0.95


FITTED = [
    (DecisionTreeClassifier(max_depth=4, random_state=0), CANCER, 4),
    (RandomForestClassifier(5, max_depth=4, random_state=0), IRIS, 5),
    (GradientBoostingClassifier(n_estimators=5, random_state=0), CANCER, 6),
    (HistGradientBoostingClassifier(max_iter=5, random_state=0), CANCER, 8),
    (DecisionTreeRegressor(max_depth=4, random_state=0), DIABETES, 6),
]


@pytest.mark.parametrize(("estimator", "data", "bits"), FITTED, ids=lambda value: type(value).__name__)
def test_trees_that_are_fitted_on_integers_lose_nothing_by_them(estimator, data, bits):
    X, y = data.data, data.target
    model = models.fit(estimator, X[::2], y[::2], bits=bits)
    scores = check(model, X)
    # What the estimator sees are the integers, of features that the model ignores as well.
    codes = np.stack([models.Uniform.fit(X[::2, j], bits).encode(X[:, j]) for j in range(X.shape[1])], axis=1)
    columns = model.quantise(X)
    assert all(np.array_equal(columns[f"x{j}"], codes[:, j]) for j in model.quantisers)
    assert all(quantiser.levels == 2**bits - 1 for quantiser in model.quantisers.values())
    if model.finish.classes is None:
        assert np.abs(model.predict(scores) - estimator.predict(codes)).max() < 0.1
    else:
        assert np.array_equal(model.predict(scores), estimator.predict(codes))


def test_boosters_are_fitted_on_integers():
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    X, y = CANCER.data, CANCER.target
    for estimator in (
        xgboost.XGBClassifier(n_estimators=5, max_depth=3, n_jobs=1),
        lightgbm.LGBMClassifier(n_estimators=5, num_leaves=8, n_jobs=1, verbose=-1),
    ):
        model = models.fit(estimator, X[::2], y[::2], bits=5, sample_weight=np.ones(len(X[::2])))
        codes = np.stack([models.Uniform.fit(X[::2, j], 5).encode(X[:, j]) for j in range(X.shape[1])], axis=1)
        assert (model.predict(check(model, X)) == estimator.predict(codes)).mean() > 0.99


def test_only_trees_are_fitted_here_and_widths_are_checked_before():
    X, y = IRIS.data, IRIS.target
    with pytest.raises(ModelError, match="LogisticRegression is not fitted here: trees"):
        models.fit(LogisticRegression(), X, y)
    tree = DecisionTreeClassifier()
    with pytest.raises(ModelError, match=r"bits must lie in 1\.\.16"):
        models.fit(tree, X, y, bits=17)
    with pytest.raises(ModelError, match="no rows to fit on"):
        models.fit(tree, X[:0], y[:0])
    with pytest.raises(ModelError, match="finite"):
        models.fit(tree, np.where(X > 1, X, np.nan), y)
    assert not hasattr(tree, "tree_")
    pandas = pytest.importorskip("pandas")
    names = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
    assert models.fit(tree, pandas.DataFrame(X, columns=names), y).features == tuple(names)


@pytest.mark.parametrize("values", [[-0.7, 0.0, 2.4], [3.1, 8.0], [-9.0, -1.5], [0.3, 0.3], [1e9, 1e9 + 1]])
@pytest.mark.parametrize("bits", [1, 4, 16])
def test_steps_keep_zero_and_lose_at_most_half_of_one(values, bits):
    quantiser = models.Uniform.fit(values, bits)
    found = quantiser.decode(quantiser.encode(values))
    width = (max(values) - min(values)) / (2**bits - 1)
    assert np.abs(found - values).max() <= width / 2 + 1e-12 * max(map(abs, values))
    if 0.0 in values:
        assert found[values.index(0.0)] == 0.0


@pytest.mark.parametrize("kind", ["XGBClassifier", "XGBRegressor", "multi"])
def test_xgboost(kind, tmp_path):
    xgboost = pytest.importorskip("xgboost")
    data = DIABETES if kind == "XGBRegressor" else IRIS if kind == "multi" else CANCER
    X, y = data.data, data.target
    options = {"n_estimators": 8, "max_depth": 3, "random_state": 0, "n_jobs": 1}
    estimator = (xgboost.XGBRegressor if kind == "XGBRegressor" else xgboost.XGBClassifier)(**options).fit(X, y)
    model = models.compile(estimator, X)
    scores = check(model, X)
    margin = estimator.predict(X, output_margin=True)
    assert np.allclose(model.decision(scores), margin, rtol=1e-4, atol=2e-3 * max(1, np.abs(margin).max() / 10))
    if kind != "XGBRegressor":
        assert (model.predict(scores) == estimator.predict(X)).mean() > 0.99
    # Values on thresholds, which lie between the values of a sample.
    rows = np.repeat(X[:40], 3, axis=0)
    for i, row in enumerate(rows):
        j = next(iter(model.quantisers)) if i % 2 else list(model.quantisers)[-1]
        row[j] = model.quantisers[j].thresholds[i % model.quantisers[j].levels]
    assert np.allclose(model.decision(check(model, rows)), estimator.predict(rows, output_margin=True), rtol=1e-4, atol=0.5 if kind == "XGBRegressor" else 2e-3)
    path = tmp_path / "model.json"
    estimator.save_model(path)
    dumped = models.compile(path, X)
    assert np.array_equal(dumped.predict_quantized(X), scores)
    assert np.array_equal(models.compile(json.loads(path.read_text()), X).predict_quantized(X), scores)


@pytest.mark.parametrize("kind", ["LGBMClassifier", "LGBMRegressor", "multi"])
def test_lightgbm(kind, tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    data = DIABETES if kind == "LGBMRegressor" else IRIS if kind == "multi" else CANCER
    X, y = data.data, data.target
    options = {"n_estimators": 6, "num_leaves": 12, "random_state": 0, "n_jobs": 1, "verbose": -1}
    estimator = (lightgbm.LGBMRegressor if kind == "LGBMRegressor" else lightgbm.LGBMClassifier)(**options).fit(X, y)
    model = models.compile(estimator, X)
    scores = check(model, X)
    raw = estimator.predict(X, raw_score=True)
    assert np.abs(model.decision(scores) - raw).max() < 2e-3 * max(1, np.ptp(raw) / 10)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(estimator.booster_.dump_model()))
    assert np.array_equal(models.compile(path, X).predict_quantized(X), scores)


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(max_iter=1000), LinearSVC(dual=False), RidgeClassifier()],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("data", [CANCER, IRIS], ids=["two", "three"])
def test_linear_classifiers(estimator, data):
    X, y = StandardScaler().fit_transform(data.data), data.target
    estimator.fit(X, y)
    model = models.compile(estimator, X, score_bits=20)
    scores = check(model, X)
    assert np.ptp(scores, axis=0).max() < 1 << 20
    assert abs(model.score(X, y) - estimator.score(X, y)) <= 0.01
    if isinstance(estimator, LogisticRegression):
        assert np.abs(model.predict_proba(scores) - estimator.predict_proba(X)).max() < 0.1
    else:
        with pytest.raises(ModelError, match="no probabilities"):
            model.predict_proba(scores)


@pytest.mark.parametrize("estimator", [LinearRegression(), Ridge()], ids=lambda value: type(value).__name__)
def test_linear_regressors(estimator):
    X, y = DIABETES.data, DIABETES.target
    for targets in (y, np.stack([y, -2 * y], axis=1)):
        estimator.fit(X, targets)
        model = models.compile(estimator, X, bits=10, score_bits=24)
        scores = check(model, X)
        assert model.predict(scores).shape == targets.shape
        assert np.abs(model.predict(scores) - estimator.predict(X)).max() < 2


def test_values_outside_the_sample_are_clipped():
    model = models.compile(LinearRegression().fit([[0.0], [1.0]], [0.0, 2.0]), [[0.0], [1.0]], bits=8)
    assert np.array_equal(check(model, [[-5.0], [0.0]])[:, 0], [0, 0])
    assert np.array_equal(model.quantise([[9.0]])["x0"], [255])


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_perceptrons(activation):
    X, y = StandardScaler().fit_transform(IRIS.data), IRIS.target
    estimator = MLPClassifier((6, 5), activation, solver="lbfgs", max_iter=300, random_state=0).fit(X, y)
    model = models.compile(estimator, X, bits=7)
    check(model, X)
    assert model.score(X, y) > 0.94


def test_binary_and_regressing_perceptrons():
    X, y = StandardScaler().fit_transform(CANCER.data[:, :6]), CANCER.target
    estimator = MLPClassifier((4,), solver="lbfgs", max_iter=300, random_state=0).fit(X, y)
    model = models.compile(estimator, X)
    assert np.abs(model.predict_proba(check(model, X)) - estimator.predict_proba(X)).mean() < 0.05
    regressor = MLPRegressor(hidden_layer_sizes=(4,), solver="lbfgs", max_iter=300, random_state=0).fit(X, X[:, 0] * 2)
    model = models.compile(regressor, X)
    check(model, X)
    assert model.score(X, regressor.predict(X)) > 0.95


def test_networks_of_integers():
    network = Network(
        [Layer([[1, -2], [3, 1]], [0, -4], lambda value: max(value, 0)), Layer([[2, -1]], [5])], inputs=[(-3, 7), (0, 7)]
    )
    X = np.array([[x, y] for x in range(-3, 8) for y in range(8)])
    expected = [2 * max(x - 2 * y, 0) - max(3 * x + y - 4, 0) + 5 for x, y in X.tolist()]
    assert np.array_equal(check(network, X)[:, 0], expected)
    with pytest.raises(ModelError, match=r"-3\.\.7"):
        network.quantise([[8, 0]])
    with pytest.raises(ModelError, match="integers"):
        network.quantise([[0.5, 0]])


def test_refusals_say_what_would_help():
    X, y = IRIS.data, IRIS.target
    with pytest.raises(ModelError, match="KNeighborsClassifier is not supported; linear models"):
        models.compile(KNeighborsClassifier().fit(X, y), X)
    for estimator in (LogisticRegression(), DecisionTreeClassifier(), GradientBoostingRegressor(), MLPClassifier()):
        with pytest.raises(ModelError, match=f"{type(estimator).__name__} is not fitted; call fit first"):
            models.compile(estimator, X)
    with pytest.raises(ModelError, match="fitted on 4 features, and X has 3"):
        models.compile(DecisionTreeClassifier().fit(X, y), X[:, :3])
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    with pytest.raises(ModelError, match=r"thresholds, which take \d+ bits, and bits=2"):
        models.compile(forest, X, bits=2)
    with pytest.raises(ModelError, match="do not fit a score of 4 bits"):
        models.compile(forest, X, score_bits=4)
    with pytest.raises(ModelError, match="do not fit a score of 8 bits"):
        models.compile(LogisticRegression(max_iter=1000).fit(X, y), X, score_bits=8)
    with pytest.raises(ModelError, match="bits must lie in 1..16"):
        models.compile(forest, X, bits=17)
    with pytest.raises(ModelError, match="whatever its features"):
        models.compile(DecisionTreeClassifier().fit(X, np.zeros(len(X))), X)
    model = models.compile(forest, X)
    with pytest.raises(ModelError, match="finite"):
        model.quantise(np.full((1, 4), np.nan))
    with pytest.raises(ModelError, match="must lie in"):
        model.predict_quantized({name: [999] for name in model.columns})
    with pytest.raises(ModelError, match="neither"):
        models.compile({}, X)


def test_columns_have_the_names_of_the_features():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(IRIS.data, columns=["sepal_length", "sepal_width", "petal_length", "petal_width"])
    estimator = DecisionTreeClassifier(max_depth=2, random_state=0).fit(frame, IRIS.target)
    model = models.compile(estimator, frame)
    assert set(model.columns) <= set(frame.columns)
    check(model, frame)
    awkward = frame.rename(columns={"petal_width": "min"})
    assert models.compile(estimator.fit(awkward, IRIS.target), awkward).features == ("x0", "x1", "x2", "x3")


def test_models_on_encrypted_rows():
    X, y = IRIS.data, IRIS.target
    client = toroid.Client.generate("tiny-wopbs")
    with toroid.open() as drive:
        drive.install(client.public_keys())
        for estimator in [
            DecisionTreeClassifier(max_depth=3, random_state=1).fit(X, y),
            GradientBoostingRegressor(n_estimators=2, max_depth=2, random_state=1).fit(X, X[:, 3]),
            LogisticRegression(max_iter=1000).fit(X, y == 1),
        ]:
            model = models.compile(estimator, X, bits=4, score_bits=8, table_bits=8)
            rows = X[::15]
            table = drive.upload("flowers", client.encrypt(model.quantise(rows), model.types), replace=True)
            scores = client.decrypt(model.program.run(table, log2_failure=-40))
            expected = model.predict_quantized(rows)
            found = np.stack([scores[name] for name in model.outputs], axis=1)
            assert (found == expected).all(), model
            assert (model.predict(scores) == model.predict(expected)).all()


def test_answers_come_from_scores_alone():
    model = models.compile(DecisionTreeClassifier(max_depth=3, random_state=0).fit(*load_iris(return_X_y=True)), IRIS.data)
    scores = model.predict_quantized(IRIS.data)
    for wrong in (IRIS.data, scores[:, :2], scores[0], {"score": scores[:, 0]}):
        for answer in (model.predict, model.decision, model.predict_proba):
            with pytest.raises(ModelError, match="scores"):
                answer(wrong)
    assert model.predict({name: scores[:, place] for place, name in enumerate(model.outputs)}).tolist() == model.predict(scores).tolist()
    with pytest.raises(ModelError, match="right ones of shape"):
        model.score(IRIS.data, IRIS.target[:, None])


def test_features_of_frames_go_by_their_names():
    frame = load_iris(as_frame=True).data
    mixed = frame[frame.columns[::-1]]
    for estimator in (DecisionTreeClassifier(max_depth=3, random_state=0), LogisticRegression(max_iter=500)):
        estimator.fit(frame, IRIS.target)
        model = models.compile(estimator, mixed)
        expected = models.compile(estimator, frame).predict_quantized(frame)
        for rows in (frame, mixed, {name: mixed[name] for name in mixed}):
            assert (model.predict_quantized(model.quantise(rows)) == expected).all()
        with pytest.raises(ModelError, match="no feature"):
            model.quantise(frame[frame.columns[:3]])
        with pytest.raises(ModelError, match="another, which is no feature"):
            model.quantise(frame.assign(another=1))
    made = models.fit(DecisionTreeClassifier(max_depth=3, random_state=0), frame, IRIS.target)
    assert made.score(mixed, IRIS.target) == made.score(frame, IRIS.target)


def test_missing_features_are_refused():
    model = models.compile(LinearRegression().fit([[0.0], [1.0]], [0, 1]), [[0.0], [1.0]])
    with pytest.raises(ModelError, match="missing"):
        model.quantise(np.ma.array([[0.5]], mask=True))


def test_networks_compute_with_integers_of_64_bits_alone():
    with pytest.raises(ModelError, match="may exceed 64 bits"):
        Network([Layer([[2**62, 2**62]])], [(0, 3), (0, 3)])
    with pytest.raises(ModelError, match="at most 64 bits"):
        Layer([[2**70]])
    for activation in (lambda value: value / 2, lambda value: "3"):
        with pytest.raises(ModelError, match="and no integer"):
            Network([Layer([[1]], activation=activation)], [(0, 3)])


# With this seed the tree asks for x2 and x3, with most others for x3 alone.
TREE = DecisionTreeClassifier(max_depth=2, random_state=4).fit(IRIS.data, IRIS.target)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: models.compile(TREE, [["a"] * 4]), "a matrix of numbers: could not convert"),
        (lambda model: models.compile(TREE, [[1, 2], [1]]), "a matrix of numbers"),
        (lambda model: models.compile(DecisionTreeClassifier, IRIS.data), "DecisionTreeClassifier is a class"),
        (lambda model: models.fit(DecisionTreeClassifier, IRIS.data, IRIS.target), "DecisionTreeClassifier is a class"),
        (lambda model: models.compile(TREE, IRIS.data, bits="8"), "bits must be an integer, not '8'"),
        (lambda model: models.compile(TREE, IRIS.data, score_bits=2.5), "score_bits must be an integer, not 2.5"),
        (lambda model: model.quantise({name: [1.0] * (1 + (name == "x3")) for name in model.features}), "as many rows each"),
        (lambda model: model.predict_quantized({}), "there is no column x2; the model has x2, x3"),
        (lambda model: model.predict_quantized({"x2": [0.5], "x3": [0.5]}), "column x2 must be integers"),
        (lambda model: model.predict_quantized({"x2": [np.nan], "x3": [np.nan]}), "column x2 must be integers"),
        (lambda model: model.predict_quantized({"x2": ["1"], "x3": ["1"]}), "column x2 must be integers"),
        (lambda model: model.predict_quantized({"x2": [0], "x3": [0, 1]}), "as many rows each"),
        (lambda model: model.predict({"score_0": [1, 2], "score_1": [1], "score_2": [1]}), "as many rows each"),
        (lambda model: Layer([[1, 2], [1]]), "weights must be integers"),
        (lambda model: Layer([[np.nan, 1]]), "weights must be integers"),
        (lambda model: Layer([[1, 2]], activation=5), "an activation is a function"),
        (lambda model: Network([], [(0, 1)]), "at least one layer"),
        (lambda model: Network([5], [(0, 1)]), "each of them a Layer"),
        (lambda model: Network([Layer([[1]])], 5), "a pair of the least and the greatest integer"),
        (lambda model: Network([Layer([[1]])], [(0, 1.5)]), "the intervals of inputs must be integers"),
        (lambda model: Network([Layer([[1]], activation=lambda value: 1 // value)], [(0, 1)]), "the activation of 0 raises ZeroDivisionError"),
    ],
)
def test_wrong_arguments_are_refused_with_words(call, message):
    model = models.compile(TREE, IRIS.data, score_bits=8, table_bits=8)
    with pytest.raises(ModelError, match=message):
        call(model)
