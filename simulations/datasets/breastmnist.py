"""The `breastmnist` data set: 780 breast ultrasound images, 28 x 28 pixels, malignant or not.

MedMNIST v2 (Yang et al. 2023) after Al-Dhabyani et al., Data in Brief 28, 2020; CC BY 4.0.
"""

from __future__ import annotations

from simulations.datasets.dataset import Dataset
from simulations.datasets.medmnist import MedMnist, load_medmnist
from simulations.datasets.request import DatasetRequest
from simulations.datasets.sources import DataSource

TASK = MedMnist(
    source=DataSource(
        folder="breastmnist",
        url="https://zenodo.org/records/10519652/files/breastmnist.npz",
        steps="download breastmnist.npz",
    ),
    checksum="8c535de4068892a0b81956ee0dd0b3993766812070f5a5b20d6678cc772ab5ce",
    class_names=("malignant", "normal or benign"),
    public_size=200,
    about="Breast ultrasound images (BreastMNIST, 28 x 28).",
)


def load(request: DatasetRequest) -> Dataset:
    """See medmnist.load_medmnist."""
    return load_medmnist(TASK, request)
