"""The log line at a start that says whether publications are kept for an uplink.

In: the broker. Out: one line.
"""

import logging

from gateway.broker.broker import Broker
from gateway.system.amounts import stranded

log = logging.getLogger(__name__)


def tell_use_of_spool(broker: Broker) -> None:
    """Log whether publications are kept for an uplink. If there is no uplink, but publications wait
    in the spool, log their number.
    """
    spool = broker.spool
    if broker.config.spooled:
        log.info("there is an [uplink]: the spool keeps publications to the topics of [spool]")
    elif spool.count:
        log.warning("spool: %s", stranded(spool.count, spool.size))
    else:
        log.info("there is no [uplink]: publications are not kept in the spool")
