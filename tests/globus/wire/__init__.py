"""The real `globus-compute-endpoint` agent over a real RabbitMQ, in front of the stand-in's web services."""
