//! rumqttc. Its event loop reconnects when it is polled after an error. Only the packets among the
//! events tell a program whether a message was acknowledged.

use std::time::Duration;

use rumqttc::Transport;
use serde_json::Value;

const WAIT: Duration = Duration::from_millis(200);

struct Options {
    subscribes: bool,
    way: String,
    host: String,
    id: String,
    topic: String,
    port: u16,
    qos: u8,
    count: usize,
    within: Duration,
    ca: Vec<u8>,
}

fn end(text: &str) -> ! {
    println!("{text}");
    std::process::exit(0)
}

impl Options {
    fn new(given: &Value) -> Self {
        let text = |key: &str| given[key].as_str().unwrap_or("").to_string();
        let (way, port) = (text("way"), given["port"].as_u64().unwrap() as u16);
        let ca = given["ca"].as_str().map(|path| std::fs::read(path).unwrap());
        Options {
            subscribes: text("does") == "subscribe",
            host: match way.as_str() {
                "ws" | "wss" => format!("{way}://127.0.0.1:{port}/mqtt"),
                _ => "127.0.0.1".to_string(),
            },
            way,
            port,
            id: text("id"),
            topic: text("topic"),
            qos: given["qos"].as_u64().unwrap() as u8,
            count: given["count"].as_u64().unwrap() as usize,
            within: Duration::from_secs_f64(given["within_s"].as_f64().unwrap()),
            ca: ca.unwrap_or_default(),
        }
    }

    fn transport(&self) -> Transport {
        match self.way.as_str() {
            "tls" => Transport::tls(self.ca.clone(), None, None),
            "ws" => Transport::Ws,
            "wss" => Transport::wss(self.ca.clone(), None, None),
            _ => Transport::Tcp,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let given: Value = serde_json::from_str(&std::env::args().nth(1).unwrap()).unwrap();
    let of = Options::new(&given);
    let all = async {
        if given["version"] == 5 {
            newer(&of).await
        } else {
            older(&of).await
        }
    };
    if of.subscribes {
        all.await
    } else if tokio::time::timeout(of.within, all).await.is_err() {
        end("not published")
    }
}

async fn newer(of: &Options) {
    use rumqttc::v5::mqttbytes::v5::{Packet, PubAckReason, PubCompReason, PubRecReason};
    use rumqttc::v5::mqttbytes::QoS;
    use rumqttc::v5::{AsyncClient, Event, MqttOptions};
    let mut options = MqttOptions::new(&of.id, &of.host, of.port);
    options.set_transport(of.transport()).set_clean_start(false);
    options.set_session_expiry_interval(Some(3600)).set_keep_alive(Duration::from_secs(60));
    let (client, mut events) = AsyncClient::new(options, of.count + 10);
    let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][of.qos as usize];
    for number in 0..if of.subscribes { 0 } else { of.count } {
        client.try_publish(&of.topic, qos, false, number.to_string()).unwrap();
    }
    let (mut done, mut refused) = (0, None);
    while of.subscribes || done < of.count {
        match events.poll().await {
            Ok(Event::Incoming(packet)) => match packet {
                Packet::ConnAck(_) if of.subscribes => client.try_subscribe(&of.topic, qos).unwrap(),
                Packet::SubAck(_) => println!("ready"),
                Packet::Publish(it) => println!("{}", String::from_utf8_lossy(&it.payload)),
                Packet::PubAck(it) => {
                    done += 1;
                    if it.reason != PubAckReason::Success && it.reason != PubAckReason::NoMatchingSubscribers {
                        refused = Some(format!("{:?}", it.reason));
                    }
                }
                Packet::PubRec(it)
                    if it.reason != PubRecReason::Success && it.reason != PubRecReason::NoMatchingSubscribers =>
                {
                    done += 1;
                    refused = Some(format!("{:?}", it.reason));
                }
                Packet::PubComp(it) => {
                    done += 1;
                    if it.reason != PubCompReason::Success {
                        refused = Some(format!("{:?}", it.reason));
                    }
                }
                _ => (),
            },
            Ok(_) => (),
            Err(_) => tokio::time::sleep(WAIT).await,
        }
    }
    end(&refused.map_or("published".to_string(), |reason| format!("not published: {reason}")))
}

async fn older(of: &Options) {
    use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
    let mut options = MqttOptions::new(&of.id, &of.host, of.port);
    options.set_transport(of.transport()).set_clean_session(false);
    options.set_keep_alive(Duration::from_secs(60));
    let (client, mut events) = AsyncClient::new(options, of.count + 10);
    let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][of.qos as usize];
    for number in 0..if of.subscribes { 0 } else { of.count } {
        client.try_publish(&of.topic, qos, false, number.to_string()).unwrap();
    }
    let mut done = 0;
    while of.subscribes || done < of.count {
        match events.poll().await {
            Ok(Event::Incoming(packet)) => match packet {
                Packet::ConnAck(_) if of.subscribes => client.try_subscribe(&of.topic, qos).unwrap(),
                Packet::SubAck(_) => println!("ready"),
                Packet::Publish(it) => println!("{}", String::from_utf8_lossy(&it.payload)),
                Packet::PubAck(_) | Packet::PubComp(_) => done += 1,
                _ => (),
            },
            Ok(_) => (),
            Err(_) => tokio::time::sleep(WAIT).await,
        }
    }
    end("published")
}
