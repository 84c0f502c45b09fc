package main

import (
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/beevik/etree"
	"github.com/google/uuid"
)

// Tokens is the token service, and what checks the tokens it has issued: the simulator's own service hands the same
// token to everybody, and the simulator takes any token. Here every digest, every signature, every time and every
// algorithm is checked, by other code than the client's.
type Tokens struct {
	// certificates that may ask for a token, as DER.
	users [][]byte

	mu     sync.Mutex
	issued map[string]issuedToken
	nonces map[string]bool
}

type issuedToken struct {
	assertion string
	key       *rsa.PublicKey
	expires   time.Time
}

// stsFault is a refusal of the token service: a code of WS-Trust or WS-Security, and which check failed.
type stsFault struct {
	code string
	why  error
}

func (f *stsFault) Error() string { return f.code + ": " + f.why.Error() }

// NewTokens accepts the certificates of these PEM texts.
func NewTokens(users []string) (*Tokens, error) {
	t := &Tokens{issued: map[string]issuedToken{}, nonces: map[string]bool{}}
	for _, text := range users {
		block, _ := pem.Decode([]byte(text))
		if block == nil {
			return nil, errors.New("a solution user of the scenario is no PEM certificate")
		}
		t.users = append(t.users, block.Bytes)
	}
	return t, nil
}

const (
	trustNS   = "http://docs.oasis-open.org/ws-sx/ws-trust/200512"
	samlNS    = "urn:oasis:names:tc:SAML:2.0:assertion"
	issueSOAP = `"` + trustNS + `/RST/Issue"`
)

// Issue answers a request for a holder-of-key token.
func (t *Tokens) Issue(r *http.Request, body []byte) (string, *stsFault) {
	if action := r.Header.Get("SOAPAction"); action != issueSOAP {
		return "", &stsFault{"InvalidRequest", fmt.Errorf("SOAPAction is %s", action)}
	}
	message, err := parseMessage(body)
	if err != nil {
		return "", &stsFault{"InvalidSecurity", err}
	}
	certificate, err := message.certificate()
	if err != nil {
		return "", &stsFault{"InvalidSecurity", err}
	}
	key, ok := certificate.PublicKey.(*rsa.PublicKey)
	if !ok {
		return "", &stsFault{"InvalidSecurity", errors.New("the certificate has no RSA key")}
	}
	if err := message.verify(key); err != nil {
		return "", &stsFault{"InvalidSecurity", err}
	}
	if err := message.fresh(time.Now()); err != nil {
		return "", &stsFault{"MessageExpired", err}
	}
	if !t.knows(certificate.Raw) {
		return "", &stsFault{"FailedAuthentication", errors.New("the certificate belongs to no solution user")}
	}
	created, expires, fault := message.tokenRequest(time.Now())
	if fault != nil {
		return "", fault
	}
	return t.issue(certificate, key, created, expires), nil
}

func (t *Tokens) knows(certificate []byte) bool {
	for _, user := range t.users {
		if bytes.Equal(user, certificate) {
			return true
		}
	}
	return false
}

// issue makes the token. Line ends inside values, single quotes and character references are there because a client
// that writes the assertion anew instead of passing on its bytes loses them.
func (t *Tokens) issue(certificate *x509.Certificate, key *rsa.PublicKey, created, expires time.Time) string {
	id := "_" + uuid.NewString()
	encoded := base64.StdEncoding.EncodeToString(certificate.Raw)
	encoded = encoded[:64] + "\n" + encoded[64:]
	assertion := `<saml2:Assertion xmlns:saml2="` + samlNS + `" xmlns:xs="http://www.w3.org/2001/XMLSchema"` +
		"\n  " + `xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' ID="` + id + `" IssueInstant="` + stamp(created) +
		`" Version="2.0"><saml2:Issuer>vcsim &#38; co</saml2:Issuer><saml2:Subject><saml2:NameID ` +
		`Format="http://schemas.xmlsoap.org/claims/UPN">` + certificate.Subject.CommonName + `@VSPHERE.LOCAL</saml2:NameID>` +
		`<saml2:SubjectConfirmation Method="urn:oasis:names:tc:SAML:2.0:cm:holder-of-key"><saml2:SubjectConfirmationData ` +
		`xsi:type="saml2:KeyInfoConfirmationDataType"><ds:KeyInfo xmlns:ds="` + dsigNS + `"><ds:X509Data>` +
		`<ds:X509Certificate>` + encoded + `</ds:X509Certificate></ds:X509Data></ds:KeyInfo>` +
		`</saml2:SubjectConfirmationData></saml2:SubjectConfirmation></saml2:Subject><saml2:Conditions NotBefore="` +
		stamp(created) + `" NotOnOrAfter="` + stamp(expires) + `"/></saml2:Assertion>`
	t.mu.Lock()
	t.issued[id] = issuedToken{assertion: assertion, key: key, expires: expires}
	t.mu.Unlock()
	return `<?xml version="1.0" encoding="UTF-8"?>
<S:Envelope xmlns:S="` + soapNS + `"><S:Body><ns:RequestSecurityTokenResponseCollection xmlns:ns="` + trustNS +
		`"><ns:RequestSecurityTokenResponse><ns:RequestedSecurityToken>` + assertion + `</ns:RequestedSecurityToken>` +
		`<ns:Lifetime><wsu:Created xmlns:wsu="` + utilityNS + `">` + stamp(created) + `</wsu:Created><wsu:Expires xmlns:wsu="` +
		utilityNS + `">` + stamp(expires) + `</wsu:Expires></ns:Lifetime></ns:RequestSecurityTokenResponse>` +
		`</ns:RequestSecurityTokenResponseCollection></S:Body></S:Envelope>`
}

// Login says why a LoginByToken is refused, or nil.
func (t *Tokens) Login(body []byte) error {
	message, err := parseMessage(body)
	if err != nil {
		return err
	}
	id, err := message.tokenID()
	if err != nil {
		return err
	}
	token, err := t.valid(id)
	if err != nil {
		return err
	}
	if !bytes.Contains(body, []byte(token.assertion)) {
		return errors.New("the assertion is not the one that was issued, byte for byte")
	}
	if err := message.verify(token.key); err != nil {
		return err
	}
	if message.body.FindElement("LoginByToken") == nil {
		return errors.New("the signed body is no LoginByToken")
	}
	return message.fresh(time.Now())
}

func (t *Tokens) valid(id string) (issuedToken, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	token, ok := t.issued[id]
	switch {
	case !ok:
		return token, errors.New("no token of this id was issued")
	case time.Now().After(token.expires):
		return token, errors.New("the token has expired")
	}
	return token, nil
}

var signParameter = regexp.MustCompile(`^([a-z_]+)="([^"]*)"$`)

// LoginREST says why a login with "Authorization: SIGN" is refused, or nil.
func (t *Tokens) LoginREST(r *http.Request, body []byte) error {
	values := map[string]string{}
	for _, part := range strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "SIGN "), ", ") {
		found := signParameter.FindStringSubmatch(part)
		if found == nil {
			return errors.New("the header has a part that is no parameter")
		}
		values[found[1]] = found[2]
	}
	assertion, err := unpack(values["token"])
	if err != nil {
		return fmt.Errorf("the token cannot be unpacked: %w", err)
	}
	document := etree.NewDocument()
	if err := document.ReadFromString(assertion); err != nil || document.Root() == nil {
		return errors.New("the token is no XML")
	}
	token, err := t.valid(document.Root().SelectAttrValue("ID", ""))
	if err != nil {
		return err
	}
	if assertion != token.assertion {
		return errors.New("the assertion is not the one that was issued, byte for byte")
	}
	if values["signature_alg"] != "RSA-SHA256" {
		return fmt.Errorf("the algorithm is %q", values["signature_alg"])
	}
	sum := sha256.Sum256(body)
	if values["bodyhash"] != base64.StdEncoding.EncodeToString(sum[:]) {
		return errors.New("the hash of the body is wrong")
	}
	host, port, found := cutLast(r.Host, ":")
	if !found || strings.HasSuffix(r.Host, "]") {
		host, port = r.Host, "80"
	}
	signed := strings.Join([]string{values["nonce"], r.Method, r.URL.Path, strings.ToLower(host), port, string(sum[:]), ""}, "\n")
	signature, err := base64.StdEncoding.DecodeString(values["signature"])
	if err != nil {
		return errors.New("the signature is no base64")
	}
	hash := sha256.Sum256([]byte(signed))
	if rsa.VerifyPKCS1v15(token.key, crypto.SHA256, hash[:], signature) != nil {
		return errors.New("the signature is not of the token's key over this request")
	}
	return t.useNonce(values["nonce"])
}

func cutLast(text, separator string) (before, after string, found bool) {
	if at := strings.LastIndex(text, separator); at >= 0 {
		return text[:at], text[at+len(separator):], true
	}
	return text, "", false
}

// useNonce accepts a nonce of about now, once.
func (t *Tokens) useNonce(nonce string) error {
	at, number, _ := strings.Cut(nonce, ":")
	milliseconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return errors.New("the nonce does not begin with a time")
	}
	if _, err := strconv.ParseInt(number, 10, 64); err != nil {
		return errors.New("the nonce does not end with a number")
	}
	if away := time.Since(time.UnixMilli(milliseconds)).Abs(); away > 5*time.Minute {
		return fmt.Errorf("the nonce is %s away from now", away)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.nonces[nonce] {
		return errors.New("the nonce was used before")
	}
	t.nonces[nonce] = true
	return nil
}

func unpack(packed string) (string, error) {
	compressed, err := base64.StdEncoding.DecodeString(packed)
	if err != nil {
		return "", err
	}
	reader, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(reader, maxBody))
	return string(text), err
}

// stsFaultEnvelope is the answer with a fault of the token service.
func stsFaultEnvelope(fault *stsFault) string {
	return `<?xml version="1.0" encoding="UTF-8"?>
<S:Envelope xmlns:S="` + soapNS + `"><S:Body><S:Fault xmlns:ns0="` + trustNS + `"><faultcode>ns0:` + fault.code +
		`</faultcode><faultstring>` + escapeText(fault.why.Error()) + `</faultstring></S:Fault></S:Body></S:Envelope>`
}
