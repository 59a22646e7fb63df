"""A `PrivacyEngine` that trains on real rows."""

from __future__ import annotations

import torch
from opacus import PrivacyEngine
from statsmodels.datasets import randhie

ROWS, BATCH, NOISE = 1000, 50, 1.1


def trained(engine: PrivacyEngine, *, poisson: bool = True, epochs: int = 2) -> torch.nn.Module:
    """Logistic regression of rows of RAND HIE, for some epochs."""
    table = randhie.load_pandas().data.iloc[:ROWS]
    features = torch.tensor(table[["lncoins", "lpi", "disea"]].to_numpy(), dtype=torch.float32)
    target = torch.tensor(table["physlm"].to_numpy() >= 0.5, dtype=torch.float32)
    data = torch.utils.data.TensorDataset((features - features.mean(0)) / features.std(0), target)
    model = torch.nn.Linear(3, 1)
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=not poisson),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
    )
    for _ in range(epochs):
        for given, wanted in loader:
            optimizer.zero_grad()
            if len(given):
                loss = torch.nn.functional.binary_cross_entropy_with_logits(private(given)[:, 0], wanted)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return private  # type: ignore[no-any-return]
