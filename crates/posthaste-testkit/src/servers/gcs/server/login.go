package main

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"strings"
	"time"
)

// The account that may write.
const account = "relay@shop"

// Lets those in who have a token that the key of the account has signed.
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
	Issuer  string `json:"iss"`
	Subject string `json:"sub"`
	Scope   string `json:"scope"`
	From    int64  `json:"iat"`
	To      int64  `json:"exp"`
}

func (l *login) allows(r *http.Request) bool {
	token, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if !isBearer || len(parts) != 3 {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(l.key, crypto.SHA256, hash[:], signature) != nil {
		return false
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var found claims
	if err != nil || json.Unmarshal(text, &found) != nil {
		return false
	}
	now := time.Now().Unix()
	isNow := found.From <= now && now < found.To && found.To-found.From <= 3600
	isOurs := found.Issuer == account && found.Subject == account
	return isNow && isOurs && found.Scope == "https://www.googleapis.com/auth/cloud-platform"
}
