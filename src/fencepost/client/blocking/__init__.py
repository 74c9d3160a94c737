"""The blocking clients: `Producer`, `Consumer`, `Admin`. All clients of a process share one I/O thread."""

from fencepost.client.blocking.admin import Admin as Admin
from fencepost.client.blocking.consumer import Consumer as Consumer
from fencepost.client.blocking.producer import BulkDelivery as BulkDelivery
from fencepost.client.blocking.producer import Delivery as Delivery
from fencepost.client.blocking.producer import Producer as Producer
