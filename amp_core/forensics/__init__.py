"""Forensics: where a numeric fault of low precision starts, what it is, and which recipe mends it."""

from amp_core.forensics.diagnose import diagnose, diagnose_subject
from amp_core.forensics.diagnosis import Diagnosis, Symptom
from amp_core.forensics.subject import Subject

__all__ = ["Diagnosis", "Subject", "Symptom", "diagnose", "diagnose_subject"]
