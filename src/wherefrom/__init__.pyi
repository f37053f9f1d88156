"""All names of `wherefrom`, listed once: type checkers read this file, and `__init__.py` reads it to find them."""

from wherefrom import recipes as recipes
from wherefrom.estimators import WherefromClassifier as WherefromClassifier
from wherefrom.estimators import WherefromRegressor as WherefromRegressor
from wherefrom.laws import SWAG as SWAG
from wherefrom.laws import TRADI as TRADI
from wherefrom.laws import Laplace as Laplace
from wherefrom.laws import Snapshots as Snapshots
from wherefrom.laws import Variational as Variational
from wherefrom.likelihoods import Classification as Classification
from wherefrom.likelihoods import Counts as Counts
from wherefrom.likelihoods import Ordinal as Ordinal
from wherefrom.likelihoods import Positive as Positive
from wherefrom.likelihoods import Quantiles as Quantiles
from wherefrom.likelihoods import Regression as Regression
from wherefrom.likelihoods import Several as Several
from wherefrom.likelihoods import Survival as Survival
from wherefrom.loading import load as load
from wherefrom.posterior import Posterior as Posterior
from wherefrom.posterior.marginalise import marginalise as marginalise
from wherefrom.posterior.point import Algorithm as Algorithm
from wherefrom.posterior.point import Training as Training
from wherefrom.tables.fitting import fit as fit
from wherefrom.tables.model import Model as Model
from wherefrom.training.compute import Compute as Compute
from wherefrom.training.mlp import MLP as MLP
from wherefrom.training.rank_one import rank_one as rank_one
from wherefrom.variables import Algorithms as Algorithms
from wherefrom.variables import BatchOrder as BatchOrder
from wherefrom.variables import Dropout as Dropout
from wherefrom.variables import Families as Families
from wherefrom.variables import Folds as Folds
from wherefrom.variables import Hyperparameters as Hyperparameters
from wherefrom.variables import InitialCondition as InitialCondition
from wherefrom.variables import Iterations as Iterations
from wherefrom.variables import Jointly as Jointly
from wherefrom.variables import LogUniform as LogUniform
from wherefrom.variables import Resample as Resample

__version__: str

# Documented in their rooms, and not in `__all__`; these spellings work all the same.
# isort: split
from wherefrom.displays import DoubtDisplay as DoubtDisplay
from wherefrom.files.errors import FileError as FileError
from wherefrom.likelihoods import ClassPrediction as ClassPrediction
from wherefrom.likelihoods import CountPrediction as CountPrediction
from wherefrom.likelihoods import OrdinalPrediction as OrdinalPrediction
from wherefrom.likelihoods import OwnLikelihood as OwnLikelihood
from wherefrom.likelihoods import OwnPrediction as OwnPrediction
from wherefrom.likelihoods import PositivePrediction as PositivePrediction
from wherefrom.likelihoods import Prediction as Prediction
from wherefrom.likelihoods import QuantilePrediction as QuantilePrediction
from wherefrom.likelihoods import SeveralPrediction as SeveralPrediction
from wherefrom.likelihoods import SurvivalPrediction as SurvivalPrediction
from wherefrom.own_loop import callbacks as callbacks
from wherefrom.own_loop.recorder import Recorder as Recorder
from wherefrom.posterior import DivergedError as DivergedError
from wherefrom.posterior.marginalise import marginalise_folds as marginalise_folds
from wherefrom.predictive import one_shot as one_shot
from wherefrom.predictive.advice import Advice as Advice
from wherefrom.predictive.calibration import Conformal as Conformal
from wherefrom.predictive.calibration import Temperature as Temperature
from wherefrom.predictive.calibration import VarianceScale as VarianceScale
from wherefrom.predictive.sources import Sources as Sources
from wherefrom.training import augmentation as augmentation
from wherefrom.training import executors as executors
from wherefrom.training import schedules as schedules
from wherefrom.training.checkpoints import Checkpoints as Checkpoints
from wherefrom.training.gaussian_process import GaussianProcess as GaussianProcess
from wherefrom.training.trees import Trees as Trees
from wherefrom.variables import MLPs as MLPs
from wherefrom.variables import glorot_uniform as glorot_uniform

augment = augmentation
