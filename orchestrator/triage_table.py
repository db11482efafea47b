"""What a failed job's last words mean: one row per pattern, the more telling ones first. Pure data.

A row names the cause in one word, what to look for, what it means, what helps, and which change of the
request would help by itself. Every pattern is matched against single lines of at most 1000 characters.
"""

import re
from dataclasses import dataclass
from enum import StrEnum


class Remedy(StrEnum):
    """What a new submission would have to change."""

    NONE = "none"
    """The work itself has to be changed first."""
    AGAIN = "again"
    MEMORY = "memory"
    WALLTIME = "walltime"
    GPU_MEMORY = "gpu_memory"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Row:
    """One cause: its word, the lines that show it, what it means, what helps."""

    word: str
    shows: re.Pattern[str]
    means: str
    helps: str
    remedy: Remedy = Remedy.NONE


def _row(word: str, shows: str, means: str, helps: str, remedy: Remedy = Remedy.NONE) -> Row:
    return Row(word, re.compile(shows), means, helps, remedy)


ROWS: tuple[Row, ...] = (
    # --- what the scheduler's daemons write into the job's own output
    _row(
        "walltime_exceeded",
        r"DUE TO TIME LIMIT|exceeded (?:its )?(?:wall ?time|walltime|hard wallclock)|TERM_RUNLIMIT",
        "The job reached its wall time and was ended.",
        "Ask for more wall time, or have the work save checkpoints and go on from them.",
        Remedy.WALLTIME,
    ),
    _row(
        "step_request",
        r"Step requested GRES .* not found in the job|SLURM_MEM_PER_NODE are mutually exclusive",
        "A step inside the job asks for resources in another way than the job does.",
        "Leave GPU and memory options out of the step, or repeat the job's own; clear SLURM_* before "
        "submitting from inside a job.",
    ),
    _row(
        "node_failed",
        r"DUE TO NODE FAILURE|CANCELLED .*NODE[ _]FAIL|Node failure on |Communication connection failure",
        "A node of the job failed; the work is not at fault.",
        "Submit it again; leave the system out if it happens twice.",
        Remedy.AGAIN,
    ),
    _row(
        "preempted",
        r"DUE TO PREEMPTION|TERM_PREEMPT",
        "The job gave way to one of higher priority.",
        "Submit it again, or choose a partition or QoS that is not preempted.",
        Remedy.AGAIN,
    ),
    _row(
        "out_of_memory",
        r"oom[-_ ]kill|Out Of Memory|OOM Killed|Killed process \d+|exceeded (?:job )?memory limit"
        r"|TERM_MEMLIMIT",
        "The work needed more memory than it was given and was killed.",
        "Ask for more memory, or let the work use less at once.",
        Remedy.MEMORY,
    ),
    # --- accelerators
    _row(
        "gpu_out_of_memory",
        r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|HIP out of memory|OutOfMemoryError: .*(?:CUDA|HIP)"
        r"|RESOURCE_EXHAUSTED: .*(?:allocat|memory)|cudaErrorMemoryAllocation",
        "A GPU's memory was too small for the work.",
        "Use a smaller batch, shard the model, or ask for larger GPUs (accelerator.min_memory_mib).",
        Remedy.GPU_MEMORY,
    ),
    _row(
        "gpu_fault",
        r"\bNVRM: Xid|uncorrectable ECC|CUDA error: (?:an illegal instruction|hardware)|fallen off the bus",
        "A GPU reported a hardware fault.",
        "Submit it again elsewhere, and tell the site which node it was.",
        Remedy.ELSEWHERE,
    ),
    _row(
        "gpu_missing",
        r"no CUDA-capable device|No CUDA GPUs are available|Found no NVIDIA driver|CUDA driver version is "
        r"insufficient|libcuda\.so\.1: cannot open",
        "The work found no GPU that it can use.",
        "Ask for a GPU in the envelope; if one was granted, check that program and driver fit together.",
    ),
    _row(
        "gpu_kernel_unsupported",
        r"no kernel image is available|is not compatible with the current PyTorch installation",
        "The program was not built for this type of GPU.",
        "Name the GPU types it was built for (accelerator.types), or rebuild it.",
    ),
    _row(
        "nccl_failed",
        r"\bNCCL (?:error|WARN)|ncclSystemError|ncclInternalError|ncclUnhandledCudaError|ncclRemoteError"
        r"|Watchdog caught collective operation timeout",
        "Communication between GPUs failed.",
        "Look for the rank that failed first; check NCCL_SOCKET_IFNAME; set NCCL_DEBUG=INFO; try again.",
        Remedy.AGAIN,
    ),
    # --- files and quotas
    _row(
        "disk_quota",
        r"Disk quota exceeded|quota exceeded|EDQUOT",
        "The disk quota is used up.",
        "Delete or move files at the site, or write to a file system with room.",
    ),
    _row(
        "disk_full",
        r"No space left on device|ENOSPC",
        "A file system is full; often it is /tmp or /dev/shm on the node.",
        "Write to another file system (TMPDIR), or delete files.",
    ),
    _row(
        "io_error",
        r"Input/output error|Stale (?:NFS )?file handle|Transport endpoint is not connected"
        r"|Cannot send after transport",
        "A file system did not answer properly; the work is not at fault.",
        "Submit it again, elsewhere if it lasts.",
        Remedy.ELSEWHERE,
    ),
    _row(
        "too_many_files",
        r"Too many open files|EMFILE",
        "The work had more files open than a process may.",
        "Raise the limit (ulimit -n) in the setup lines, or use fewer workers.",
    ),
    # --- environment
    _row(
        "licence_unavailable",
        r"(?i)licen[sc]e (?:server|checkout|manager|request)|Licensed number of users already reached"
        r"|FLEXnet|FlexNet|cannot (?:obtain|checkout|check out) (?:a )?licen[sc]e|No such feature exists",
        "A licence could not be had.",
        "Wait until one is free, or check the licence server's address at this site.",
        Remedy.AGAIN,
    ),
    _row(
        "module_missing",
        r"Lmod has detected the following error|Unable to locate a modulefile|module\(s\) are unknown"
        r"|facet: module .* could not be loaded|module: command not found",
        "A module could not be loaded.",
        "Use a module's name at this site (module spider NAME), or leave the system out.",
        Remedy.ELSEWHERE,
    ),
    _row(
        "conda_missing",
        r"EnvironmentNameNotFound|Could not find conda environment|Not a conda environment"
        r"|facet: conda environment|conda: command not found",
        "The conda environment could not be activated.",
        "Make the environment at this site, or name one that is there.",
        Remedy.ELSEWHERE,
    ),
    _row(
        "container_failed",
        r"FATAL: +(?:could not open image|While |Unable to |container )|manifest unknown|Error response from "
        r"daemon|pull access denied|failed to pull image",
        "The container could not be started.",
        "Check the image's name and that the site may read it.",
    ),
    _row(
        "python_module_missing",
        r"ModuleNotFoundError: No module named|ImportError: (?:cannot import name|No module named)",
        "A Python package is missing or of another version.",
        "Install it into the environment the task names, or name the right environment (modules, conda).",
    ),
    _row(
        "library_missing",
        r"error while loading shared libraries|version `(?:GLIBC|GLIBCXX|CXXABI)[^']*' not found"
        r"|ImportError: .*\.so[.\d]*: cannot open|symbol lookup error",
        "A shared library is missing or too old here.",
        "Load the module that brings it, or rebuild the program on this system.",
    ),
    _row(
        "wrong_architecture",
        r"Exec format error|Illegal instruction|cannot execute binary file",
        "The program was built for another kind of processor.",
        "Rebuild it here, or name the architecture in the envelope.",
        Remedy.ELSEWHERE,
    ),
    _row(
        "command_not_found",
        r": command not found|: not found$|execve\(\): .*: No such file or directory"
        r"|exec: .*: (?:cannot execute: )?(?:No such file|not found)",
        "A program was not found on the compute node.",
        "Load the module that brings it, or give its whole path.",
    ),
    _row(
        "permission_denied",
        r"(?i)permission denied|PermissionError:|Operation not permitted",
        "A file or program may not be used as the work tried to.",
        "Check the path's owner and mode at the site (chmod +x for a program).",
    ),
    # --- the network, and parallel runs
    _row(
        "network_unreachable",
        r"Network is unreachable|Could not resolve host|Temporary failure in name resolution"
        r"|Name or service not known|ConnectTimeout|Max retries exceeded with url",
        "The compute node could not reach an address on the network.",
        "Fetch what is needed before the job starts, or set the site's proxy: many nodes have no way out.",
    ),
    _row(
        "address_in_use",
        r"Address already in use|EADDRINUSE",
        "A network port was taken by another process on the node.",
        "Choose the port at run time (for example from the job id).",
        Remedy.AGAIN,
    ),
    _row(
        "launch_failed",
        r"srun: error: (?:Unable to create step|Task launch|task \d+ launch failed|Unable to confirm)"
        r"|More processors requested than permitted|not enough slots available",
        "The parallel run could not be started within the job.",
        "Fit the launcher's tasks and CPUs to what the job was given.",
    ),
    _row(
        "segmentation_fault",
        r"(?i)segmentation fault|SIGSEGV|Signal: 11 |bus error|SIGBUS|double free or corruption"
        r"|stack smashing detected",
        "The program read or wrote memory that is not its own.",
        "Run it small with a debugger or a sanitizer; check that its libraries fit together.",
    ),
    _row(
        "numerical_failure",
        r"Floating point exception|SIGFPE|(?i:loss is nan)|contains NaN|FloatingPointError",
        "The computation gave something that is no number.",
        "Check the input, step size or precision.",
    ),
    _row(
        "mpi_failed",
        r"MPI_ABORT was invoked|MPI_Abort|Fatal error in (?:PMPI_|internal_)|PMIX ERROR|PMI2?_Init"
        r"|mpirun (?:has exited|noticed)|An error occurred in MPI_|MPIDI_|UCX +ERROR|ORTE (?:was|has|does)",
        "The parallel run was broken off by MPI; mostly one rank failed first.",
        "Look for the first rank's own error; check that MPI and launcher are of one make.",
    ),
    _row(
        "file_missing",
        r"No such file or directory|FileNotFoundError|ENOENT",
        "A file or folder that the work reads is not there.",
        "Bring it to the system first, and check the path in the command.",
    ),
    _row(
        "host_memory_exhausted",
        r"^MemoryError|std::bad_alloc|Cannot allocate memory|Unable to allocate [\d.]+ [KMGTP]iB"
        r"|java\.lang\.OutOfMemoryError|virtual memory exhausted",
        "The work could not get the memory it asked for.",
        "Ask for more memory, or let the work use less at once.",
        Remedy.MEMORY,
    ),
    _row(
        "bad_arguments",
        r"error: (?:unrecognized arguments|the following arguments are required|argument .*: invalid)"
        r"|unrecognized option|invalid option|^[Uu]sage: ",
        "The program did not understand its arguments.",
        "Correct the command.",
    ),
    _row(
        "script_error",
        r"syntax error near|SyntaxError:|IndentationError:|unexpected EOF|unbound variable|bad interpreter",
        "The script itself is faulty.",
        "Correct it; try it with bash -n or python -m py_compile.",
    ),
    _row(
        "assertion_failed",
        r"Assertion .*failed|AssertionError|terminate called after throwing|panicked at |Aborted",
        "The program stopped itself because something was not as it must be.",
        "Read the message beside it; the input or the program has to change.",
    ),
    _row(
        "python_exception",
        r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception)(?::|$)",
        "A Python program ended with an exception that nothing caught.",
        "Read the traceback and correct the program or its input.",
    ),
)  # fmt: skip

REFUSALS: tuple[Row, ...] = (
    _row(
        "account_refused",
        r"(?i)invalid account|account/partition combination|no association",
        "The scheduler does not let this user charge that account there.",
        "Choose an account of yours on that system, or leave the system out.",
        Remedy.ELSEWHERE,
    ),
    _row(
        "limit_refused",
        r"(?i)violates accounting/qos policy|QOS\w*Limit|Assoc\w*Limit|submit limit|time limit is invalid"
        r"|requested time limit|job size",
        "The job is larger or longer than the partition, QoS or account allows.",
        "Ask for less, or leave the system out.",
        Remedy.ELSEWHERE,
    ),
    _row(
        "shape_refused",
        r"(?i)requested node configuration is not available|invalid (?:generic resource|gres|feature)"
        r"|more processors requested|node count specification",
        "No node there has what was asked for in that combination.",
        "Ask for another shape, or leave the system out.",
        Remedy.ELSEWHERE,
    ),
)
"""What schedulers say when they refuse a job."""
