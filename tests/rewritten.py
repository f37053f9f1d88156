"""Files of a run, changed by somebody who also writes the digests anew: what is left to catch is up to the reader."""

import json

from wherefrom.files import folders
from wherefrom.files.folders import Run


def rewrite(folder, name, change):
    """Replace a JSON file of a run by `change(document)`."""
    document = change(Run.open(folder).json(name))
    with folders.writing(folder) as run:
        run.put_json(name, document)
        run.commit()


def rewrite_member(folder, name, change):
    """Replace a safetensors file of a run by `change(about, tensors)`, which returns both."""
    metadata, tensors = Run.open(folder).tensors(name)
    about, tensors = change(json.loads(metadata["about"]), tensors)
    with folders.writing(folder) as run:
        run.put_tensors(name, tensors, metadata | {"about": json.dumps(about)})
        run.commit()
