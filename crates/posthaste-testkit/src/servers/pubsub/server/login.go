package main

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Lets those in who have a token that the key of an account has signed.
type login struct {
	key *rsa.PublicKey
}

func readLogin(file string) *login {
	text, err := os.ReadFile(file)
	expect(err)
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	expect(err)
	return &login{key: &key.(*rsa.PrivateKey).PublicKey}
}

type claims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	From     int64  `json:"iat"`
	To       int64  `json:"exp"`
}

func (l *login) check(ctx context.Context) error {
	refused := status.Error(codes.Unauthenticated, "Request had invalid authentication credentials.")
	all, _ := metadata.FromIncomingContext(ctx)
	given := all.Get("authorization")
	if len(given) != 1 {
		return refused
	}
	token, isBearer := strings.CutPrefix(given[0], "Bearer ")
	parts := strings.Split(token, ".")
	if !isBearer || len(parts) != 3 {
		return refused
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return refused
	}
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(l.key, crypto.SHA256, hash[:], signature) != nil {
		return refused
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return refused
	}
	var found claims
	if json.Unmarshal(text, &found) != nil {
		return refused
	}
	now := time.Now().Unix()
	isNow := found.From <= now && now < found.To && found.To-found.From <= 3600
	isOurs := found.Issuer != "" && found.Issuer == found.Subject
	if !isNow || !isOurs || found.Audience != "https://pubsub.googleapis.com/" {
		return refused
	}
	return nil
}
