"""Who does the trainings: threads of this process (the default), processes of this machine, or a cluster.

    wf.Compute(executor=wf.executors.Processes(8))
    wf.Compute(executor=wf.executors.Ray("10.0.0.1:6379"))        needs wherefrom[ray]

Members are the same whoever trains them: to the last bit, if processors are alike and the executors equally wide.
"""

from wherefrom.training.executor import Threads as Threads
from wherefrom.training.executors.cluster import Ray as Ray
from wherefrom.training.executors.processes import Processes as Processes
