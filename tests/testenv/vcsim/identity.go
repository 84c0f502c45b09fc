package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// Identity is the server certificate and what clients need to trust it.
type Identity struct {
	Certificate tls.Certificate
	// SHA1 and SHA256 are thumbprints of the leaf, as "AA:BB:...".
	SHA1, SHA256 string
	// CA is the certificate that signed the leaf, as PEM; empty if the scenario gave its own pair.
	CA string
}

// NewIdentity uses the given PEM pair, or makes a CA and a certificate for 127.0.0.1 and localhost.
func NewIdentity(certificate, key string) (*Identity, error) {
	identity := &Identity{}
	if certificate == "" {
		var err error
		if certificate, key, identity.CA, err = issue(); err != nil {
			return nil, fmt.Errorf("making a certificate: %w", err)
		}
	}
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	identity.Certificate = pair
	sum1 := sha1.Sum(pair.Certificate[0])
	sum256 := sha256.Sum256(pair.Certificate[0])
	identity.SHA1 = thumbprint(sum1[:])
	identity.SHA256 = thumbprint(sum256[:])
	return identity, nil
}

func thumbprint(sum []byte) string {
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}

func issue() (certificate, key, ca string, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", "", err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", "", err
	}
	from, to := time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	serial := func() *big.Int { return big.NewInt(time.Now().UnixNano()) }
	issuer := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "simulated vCenter CA"},
		NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "simulated vCenter"},
		NotBefore: from, NotAfter: to,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, issuer, issuer, &caKey.PublicKey, caKey)
	if err != nil {
		return "", "", "", err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, issuer, &leafKey.PublicKey, caKey)
	if err != nil {
		return "", "", "", err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		return "", "", "", err
	}
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("CERTIFICATE", leafDER), text("PRIVATE KEY", keyDER), text("CERTIFICATE", caDER), nil
}
