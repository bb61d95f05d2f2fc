"""What bounds a loader on this machine: each part of the way measured by itself, and compared."""

from fastloader.doctor.diagnosis import Diagnosis, Stage, Verdict, diagnose
from fastloader.doctor.examination import Question, examine
from fastloader.doctor.findings import Findings

__all__ = ["Diagnosis", "Findings", "Question", "Stage", "Verdict", "diagnose", "examine"]
