// Eclipse Paho in Go: paho.golang (autopaho) for MQTT 5, paho.mqtt.golang for MQTT 3.1.1. Both
// reconnect by themselves.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/paho"
	old "github.com/eclipse/paho.mqtt.golang"
)

type options struct {
	Does, Way, CA, ID, Topic   string
	Port, Version, QoS, Count int
	Within                     float64 `json:"within_s"`
}

const window = 10

func main() {
	var of options
	if err := json.Unmarshal([]byte(os.Args[1]), &of); err != nil {
		panic(err)
	}
	within := time.Duration(of.Within * float64(time.Second))
	if of.Does == "publish" {
		time.AfterFunc(within, func() { end("not published") })
	}
	if of.Version == 5 {
		newer(of, within)
	} else {
		older(of, within)
	}
}

func end(text string) {
	fmt.Println(text)
	os.Exit(0)
}

func (of options) tls() *tls.Config {
	pool := x509.NewCertPool()
	if of.CA != "" {
		text, err := os.ReadFile(of.CA)
		if err != nil {
			panic(err)
		}
		pool.AppendCertsFromPEM(text)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

func (of options) url() string {
	return fmt.Sprintf("%s://127.0.0.1:%d/mqtt", map[string]string{"tcp": "tcp", "tls": "tls", "ws": "ws", "wss": "wss"}[of.Way], of.Port)
}

// each calls a function for each message, some at the same time. It prints the result and exits.
func (of options) each(publish func(string) error) {
	numbers, errors := make(chan int), make(chan error, of.Count)
	var all sync.WaitGroup
	for range window {
		all.Add(1)
		go func() {
			defer all.Done()
			for number := range numbers {
				errors <- publish(strconv.Itoa(number))
			}
		}()
	}
	for number := range of.Count {
		numbers <- number
	}
	close(numbers)
	all.Wait()
	close(errors)
	for err := range errors {
		if err != nil {
			end("not published: " + err.Error())
		}
	}
	end("published")
}

func newer(of options, within time.Duration) {
	ctx := context.Background()
	server, err := url.Parse(of.url())
	if err != nil {
		panic(err)
	}
	config := autopaho.ClientConfig{
		ServerUrls:            []*url.URL{server},
		TlsCfg:                of.tls(),
		KeepAlive:             60,
		SessionExpiryInterval: 3600,
		ReconnectBackoff:      autopaho.NewConstantBackoff(200 * time.Millisecond),
		OnConnectionUp: func(manager *autopaho.ConnectionManager, _ *paho.Connack) {
			if of.Does == "subscribe" {
				go func() {
					wanted := []paho.SubscribeOptions{{Topic: of.Topic, QoS: byte(of.QoS)}}
					if _, err := manager.Subscribe(ctx, &paho.Subscribe{Subscriptions: wanted}); err == nil {
						fmt.Println("ready")
					}
				}()
			}
		},
		ClientConfig: paho.ClientConfig{
			ClientID:      of.ID,
			PacketTimeout: within,
			OnPublishReceived: []func(paho.PublishReceived) (bool, error){
				func(received paho.PublishReceived) (bool, error) {
					fmt.Println(string(received.Packet.Payload))
					return true, nil
				},
			},
		},
	}
	manager, err := autopaho.NewConnection(ctx, config)
	if err != nil {
		panic(err)
	}
	if of.Does == "subscribe" {
		select {}
	}
	of.each(func(text string) error {
		for {
			if err := manager.AwaitConnection(ctx); err != nil {
				return err
			}
			answer, err := manager.Publish(ctx, &paho.Publish{Topic: of.Topic, QoS: byte(of.QoS), Payload: []byte(text)})
			if err == autopaho.ConnectionDownError {
				continue
			}
			if err == nil && answer.ReasonCode >= 0x80 && os.Getenv("REASONS") != "" {
				return fmt.Errorf("reason code 0x%02x", answer.ReasonCode)
			}
			return err
		}
	})
}

func older(of options, within time.Duration) {
	config := old.NewClientOptions().AddBroker(of.url()).SetClientID(of.ID).SetCleanSession(false)
	config.SetTLSConfig(of.tls()).SetProtocolVersion(4).SetConnectRetry(true)
	config.SetConnectRetryInterval(200 * time.Millisecond).SetMaxReconnectInterval(200 * time.Millisecond)
	config.SetResumeSubs(true).SetOrderMatters(true)
	config.SetDefaultPublishHandler(func(_ old.Client, message old.Message) {
		fmt.Println(string(message.Payload()))
	})
	config.SetOnConnectHandler(func(client old.Client) {
		if of.Does == "subscribe" {
			go func() {
				token := client.Subscribe(of.Topic, byte(of.QoS), nil)
				if token.WaitTimeout(within) && token.Error() == nil {
					fmt.Println("ready")
				}
			}()
		}
	})
	client := old.NewClient(config)
	if token := client.Connect(); !token.WaitTimeout(within) || token.Error() != nil {
		end("not published: no connection")
	}
	if of.Does == "subscribe" {
		select {}
	}
	of.each(func(text string) error {
		token := client.Publish(of.Topic, byte(of.QoS), false, text)
		token.Wait()
		return token.Error()
	})
}
