"""What a run reports, where and how often."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoggingConfig:
    """logging: what a run reports"""

    log_interval: int = 100
    """Steps between log lines."""
    tensorboard_dir: str | None = None
    """Directory for TensorBoard files; needs the tensorboard package."""
    tensorboard_queue_size: int = 1000
    """Events that TensorBoard's writer holds back before it writes."""
    tensorboard_log_interval: int = 1
    """Steps between points on TensorBoard's curves."""
    log_validation_ppl_to_tensorboard: bool = False
    """Also draw validation perplexity."""
    log_timers_to_tensorboard: bool = False
    """Also draw the time of each part of a step, and show it under the log lines. Waits for the device after each."""
    log_memory_to_tensorboard: bool = False
    """Also draw memory use."""
    log_throughput: bool = False
    """Show TFLOP/s per rank in Megatron-LM's place in the log line (else near its end), and draw it on TensorBoard."""
    log_params_norm: bool = False
    """Also report the norm of all parameters."""
    log_num_zeros_in_grad: bool = False
    """Also report how many elements of the gradient are zero."""
    metrics_file: str | None = None
    """Append each log line's values to this file, one JSON object a line. (Not a flag of Megatron-LM.)"""
    peak_tflops: float | None = None
    """Peak TFLOP/s of one device, for the reported share of it (MFU), on hardware that is not in megalite's table.
    (Not a flag of Megatron-LM.)"""

    @property
    def times_steps(self) -> bool:
        """Whether the parts of a step are timed."""
        return self.log_timers_to_tensorboard and self.tensorboard_dir is not None
