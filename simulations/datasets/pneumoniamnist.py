"""The `pneumoniamnist` data set: 5,856 chest X-rays of children, 28 x 28 pixels, normal or pneumonia.

MedMNIST v2 (Yang et al. 2023) after Kermany et al., Cell 172(5), 2018; CC BY 4.0.
"""

from __future__ import annotations

from simulations.datasets.dataset import Dataset
from simulations.datasets.medmnist import MedMnist, load_medmnist
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource

TASK = MedMnist(
    source=DataSource(
        folder="pneumoniamnist",
        url="https://zenodo.org/records/10519652/files/pneumoniamnist.npz",
        steps="download pneumoniamnist.npz",
    ),
    checksum="5f23391f9f05f9d29de94fc4975e39e1187f9631ab0cb37b8c262955d8857a83",
    class_names=("normal", "pneumonia"),
    public_size=1_000,
    about="Chest X-rays of children (PneumoniaMNIST, 28 x 28).",
)


def load(request: DatasetRequest) -> Dataset:
    """See medmnist.load_medmnist."""
    return load_medmnist(TASK, request)
